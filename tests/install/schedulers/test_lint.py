from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import golden_files
from tests.install.schedulers.configurations import Json, configuration, profile
from webhook.install.schedulers import successors
from webhook.install.schedulers.lint import (
    QUEUE_SORT,
    SCHEDULER_PLUGINS,
    LintTarget,
    arguments,
    lint,
    queue_sort,
    runs,
)
from webhook.k8s.documents import Document
from webhook.placement.profiles import PLUGINS

OWN, BESIDE = LintTarget(is_the_clusters=True), LintTarget()
CLUSTERS_LEASE: Json = {"leaderElection": {"leaderElect": True}}
IMAGE = "ImageLocality"


def lists(point: str, *, enabled: tuple[str, ...] = (), disabled: tuple[str, ...] = ()) -> Json:
    return {point: {"enabled": [{"name": one} for one in enabled], "disabled": [{"name": one} for one in disabled]}}


def off(point: str, *names: str) -> Json:
    return {"plugins": lists(point, disabled=(IMAGE, *names))}


def found(written: Any, scheduler: LintTarget = BESIDE) -> list[Any]:
    return list(lint(Document(written, "f.yaml", 1), scheduler))


def codes(written: Any, scheduler: LintTarget = BESIDE) -> list[str]:
    return [problem.code for problem in found(written, scheduler)]


LIST_OF_DEFAULTS = {"name": "PodTopologySpread", "args": {"defaultingType": "List"}}
TRAPS: dict[str, tuple[Json, LintTarget]] = {
    "stale-api-version": (configuration(apiVersion="kubescheduler.config.k8s.io/v1beta3"), BESIDE),
    "invalid-field": (configuration(profile(pluginConfg=[])), BESIDE),
    "unknown-plugin": (
        configuration(profile(plugins=lists("score", enabled=("ImageLocalty",), disabled=(IMAGE,)))),
        BESIDE,
    ),
    "no-profile": (configuration(profile("vms")), BESIDE),
    "default-profile-missing": (configuration(**CLUSTERS_LEASE), OWN),
    "default-profile-twice": (configuration(profile(), profile("default-scheduler")), BESIDE),
    "differing-queue-sort": (
        configuration(profile(), profile("b", plugins=lists("queueSort", enabled=("QOSSort",), disabled=("*",)))),
        BESIDE,
    ),
    "duplicate-profile": (configuration(profile(), profile()), BESIDE),
    "no-leader-election": (configuration(leaderElection={"leaderElect": False}), BESIDE),
    "lease-clash": (configuration(**CLUSTERS_LEASE), BESIDE),
    "filter-off": (configuration(profile(**off("multiPoint", "InterPodAffinity"))), BESIDE),
    "image-locality-on": (configuration(profile(plugins={})), BESIDE),
    "default-constraints-lost": (configuration(profile(pluginConfig=[LIST_OF_DEFAULTS])), BESIDE),
    "few-nodes-scored": (configuration(percentageOfNodesToScore=10), BESIDE),
    "extender-not-ignorable": (configuration(extenders=[{"urlPrefix": "http://127.0.0.1:1"}]), BESIDE),
}


@pytest.mark.parametrize("code", TRAPS)
def test_each_trap_is_found_alone(code: str) -> None:
    assert codes(*TRAPS[code]) == [code]


def test_nothing_is_wrong_with_a_good_configuration() -> None:
    assert codes(configuration()) == []
    assert codes(configuration(profile(), profile("default-scheduler"), **CLUSTERS_LEASE), OWN) == []
    # Only the profile for VMs has to be right for them, and a score that is off is no filter that is off.
    assert codes(configuration(profile(), profile("default-scheduler", plugins={}), **CLUSTERS_LEASE), OWN) == []
    assert codes(configuration(profile(**off("score", "InterPodAffinity", "TaintToleration")))) == []


MISTYPED = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"typ": 1}}}


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"Parallelism": 3}, ("Parallelism",)),
        ({"metadata": {"name": "a"}}, ("metadata",)),
        ({"extenders": [{"ignorable": True, "url": "a"}]}, ("extenders", 0, "url")),
        ({"percentageOfNodesToScore": "100"}, ("percentageOfNodesToScore",)),
        (
            {"profiles": [profile(pluginConfig=[MISTYPED])]},
            ("profiles", 0, "pluginConfig", 0, "args", "scoringStrategy", "typ"),
        ),
        # Of a scheduler that is built with scheduler-plugins.
        (
            {"profiles": [profile(pluginConfig=[{"name": "Coscheduling", "args": {"permitWaitingTime": 9}}])]},
            ("profiles", 0, "pluginConfig", 0, "args", "permitWaitingTime"),
        ),
        (
            {"profiles": [profile(pluginConfig=[{"name": "TargetLoadPacking", "args": {"targetUtilization": "40"}}])]},
            ("profiles", 0, "pluginConfig", 0, "args", "targetUtilization"),
        ),
        ({"parallelism": 2**31}, ("parallelism",)),
    ],
)
def test_fields_that_the_scheduler_does_not_decode(more: Json, path: tuple[str | int, ...]) -> None:
    (problem,) = found(configuration(**more))
    assert (problem.code, problem.severity, problem.path) == ("invalid-field", "error", path)


def test_a_profile_without_a_name_is_the_default_schedulers() -> None:
    nameless = {key: value for key, value in profile().items() if key != "schedulerName"}
    assert codes(configuration(nameless, **CLUSTERS_LEASE), LintTarget("default-scheduler", is_the_clusters=True)) == []


def test_plugins_that_a_scheduler_is_built_with() -> None:
    written = configuration(profile(plugins=lists("score", enabled=("Own",), disabled=("*",))))

    assert "unknown-plugin" in codes(written)
    for plugins in (("Own",), None):
        assert "unknown-plugin" not in codes(written, LintTarget(plugins=plugins))
    (disabled,) = found(configuration(profile(**off("score", "Own"))))
    assert (disabled.code, disabled.severity) == ("unknown-plugin", "warning")
    # Each lost filter is a problem of its own.
    lost = lists("filter", disabled=("*",)) | off("score")["plugins"]
    assert codes(configuration(profile(plugins=lost))) == ["filter-off"] * 5


# All plugins that kube-scheduler 1.17 and 1.20 had and 1.37 does not, and of 1.28 to 1.33.
GONE = (
    *("AzureDiskLimits", "CinderLimits", "DefaultPodTopologySpread", "EBSLimits", "GCEPDLimits", "NodeLabel"),
    *("NodePreferAvoidPods", "NodeResourceLimits", "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"),
    *("RequestedToCapacityRatio", "SelectorSpread", "ServiceAffinity"),
)


@pytest.mark.parametrize("name", [*GONE, *sorted(set(successors.PLUGINS) - set(GONE))])
@pytest.mark.parametrize("part", ["enabled", "disabled"])
def test_a_plugin_that_is_gone_has_a_successor_that_exists(name: str, part: str) -> None:
    chosen = lists("score", disabled=(IMAGE,))
    chosen["score"].setdefault(part, []).append({"name": name})
    (problem,) = found(configuration(profile(plugins=chosen)))

    assert (problem.code, problem.severity) == ("unknown-plugin", "error" if part == "enabled" else "warning")
    assert "did you mean" not in problem.text
    assert name not in {*PLUGINS, *SCHEDULER_PLUGINS}
    named = {word for word in re.findall(r"[A-Z][A-Za-z]+", problem.remedy) if word in {*PLUGINS, *SCHEDULER_PLUGINS}}
    # Whatever took its place is a plugin of Kubernetes'; none did of these, or no plugin did.
    assert named <= set(PLUGINS)
    without = {"NodeResourceLimits", "ResourceLimitsPriority", "EqualPriority", "NodePreferAvoidPodsPriority"}
    if part == "enabled" and name not in {*without, "NodePreferAvoidPods"}:
        assert named


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *((plugin, None) for plugin in (*successors.ELSEWHERE, "NodeActualLoad", "Binpack", "NodeResources", "Fit")),
        *(("NodeResourcesLeastAllocatable", None), ("NodeLabels", None), ("Own", None)),
        *(("nodeAffinity", "NodeAffinity"), ("NodeResourceFit", "NodeResourcesFit"), ("QoSSort", "QOSSort")),
        *(("TaintTolerations", "TaintToleration"), ("Trimaran", None)),
    ],
)
def test_only_a_mistyped_name_is_corrected(name: str, meant: str | None) -> None:
    (problem,) = found(configuration(profile(**off("score", name))))
    assert problem.code == "unknown-plugin"
    assert ("did you mean" in problem.text) is (meant is not None)
    assert meant is None or f'did you mean "{meant}"?' in problem.text


@given(st.text(max_size=40))
def test_a_correction_is_near(name: str) -> None:
    for problem in found(configuration(profile(pluginConfig=[{"name": name}]))):
        if "did you mean" in problem.text:
            meant = problem.text.rpartition("did you mean ")[2].strip('"?')
            assert abs(len(meant) - len(name)) <= 2


def placed(path: tuple[str, ...]) -> Json:
    """A configuration with a field at a path."""
    written = configuration()
    holder: Any = written
    for key in path[:-1]:
        if key == "pluginConfig":
            holder[key] = [{"name": "Coscheduling", "args": {}}]
        holder = holder[key][0] if key in ("profiles", "pluginConfig") else holder[key]
    holder[path[-1]] = "x"
    return written


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"])
@pytest.mark.parametrize("path", successors.FIELDS)
def test_a_field_that_is_gone_has_a_successor(path: tuple[str, ...], version: str) -> None:
    written = placed(path) | {"apiVersion": f"kubescheduler.config.k8s.io/{version}"}

    problems = {problem.code: problem for problem in found(written)}

    assert ("stale-api-version" in problems) is (version != "v1")
    assert problems["invalid-field"].remedy == successors.FIELDS[path]
    assert problems["invalid-field"].path[-1] == path[-1]


def test_another_api_version_is_no_earlier_one() -> None:
    assert codes(configuration(apiVersion="v2", healthzBindAddress="a")) == ["stale-api-version"]


@pytest.mark.golden
def test_the_texts() -> None:
    problems = (one for trap in TRAPS.values() for one in found(*trap))
    lines = (f"[{one.code}] {one.severity}: {one.text}\n  {one.consequence}.\n  {one.remedy}." for one in problems)
    golden_files.check("scheduler-lint.txt", "\n".join(lines))


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({}, True),
        (lists("score", disabled=(IMAGE,)), False),
        (lists("score", disabled=("*",)), False),
        (lists("score", enabled=(IMAGE,), disabled=("*",)), True),
        (lists("multiPoint", disabled=(IMAGE,)), False),
        (lists("multiPoint", enabled=(IMAGE,), disabled=("*",)), True),
        (lists("score", enabled=(IMAGE,)) | lists("multiPoint", disabled=(IMAGE,)), True),
        (lists("score", disabled=(IMAGE,)) | lists("multiPoint", enabled=(IMAGE,)), False),
        (lists("filter", disabled=(IMAGE,)), True),
    ],
)
def test_whether_a_plugin_runs(plugins: Json, expected: bool) -> None:
    assert runs({"plugins": plugins}, "score", IMAGE) is expected


def test_queue_sorts_and_arguments() -> None:
    config = [{"name": "Other", "args": {"a": 1}}, {"name": IMAGE, "args": {"b": 2}}, 5]
    assert (arguments({"pluginConfig": config}, IMAGE), arguments({}, IMAGE)) == ({"b": 2}, {})
    assert queue_sort({}) == QUEUE_SORT
    assert queue_sort({"plugins": lists("queueSort", enabled=("Coscheduling",), disabled=("*",))}) == "Coscheduling"
    assert queue_sort({"plugins": lists("multiPoint", enabled=("QOSSort",))}) == "QOSSort"


words = st.sampled_from(
    ["plugins", "score", "multiPoint", "queueSort", "enabled", "disabled", "name", "args", IMAGE, "*"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=8), inner, max_size=4),
)
FIELDS = ["profiles", "extenders", "leaderElection", "percentageOfNodesToScore", "apiVersion"]


@given(st.dictionaries(st.sampled_from(FIELDS), values))
def test_configurations_of_any_shape_have_an_answer(written: Json) -> None:
    assert "no-profile" in codes(written)


@given(st.dictionaries(st.sampled_from(["plugins", "pluginConfig", "schedulerName"]), values))
def test_profiles_of_any_shape_have_an_answer(profile: Json) -> None:
    assert runs(profile, "score", IMAGE) in (True, False)
    assert isinstance(queue_sort(profile), str)
    arguments(profile, IMAGE)
