from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import golden_files
from tests.install.schedulers.configurations import Json, configuration, profile
from webhook.install.schedulers.lint import QUEUE_SORT, LintTarget, arguments, lint, queue_sort, runs
from webhook.k8s.yaml_documents import Document

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
    ],
)
def test_fields_that_the_scheduler_does_not_decode(more: Json, path: tuple[str | int, ...]) -> None:
    (problem,) = found(configuration(**more))
    assert (problem.code, problem.severity, problem.path) == ("invalid-field", "error", path)


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
