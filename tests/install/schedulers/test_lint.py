from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import golden_files
from tests.install.schedulers.configurations import Json, configuration, profile
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.k8s.yaml_documents import Document

OWN = LintTarget(is_the_clusters=True)
BESIDE = LintTarget()
CLUSTERS_LEASE: Json = {"leaderElection": {"leaderElect": True}}


def off(point: str, *names: str) -> Json:
    return {"plugins": {point: {"disabled": [{"name": name} for name in ("ImageLocality", *names)]}}}


def codes(written: Any, scheduler: LintTarget = BESIDE) -> list[str]:
    return [problem.code for problem in lint(Document(written, "f.yaml", 1), scheduler)]


TRAPS: dict[str, tuple[Json, LintTarget]] = {
    "stale-api-version": (configuration(apiVersion="kubescheduler.config.k8s.io/v1beta3"), LintTarget()),
    "invalid-field": (configuration(profile(pluginConfg=[])), LintTarget()),
    "unknown-plugin": (
        configuration(
            profile(plugins={"score": {"enabled": [{"name": "ImageLocalty"}], "disabled": [{"name": "ImageLocality"}]}})
        ),
        LintTarget(),
    ),
    "no-profile": (configuration(profile("vms")), LintTarget()),
    "default-profile-missing": (configuration(**CLUSTERS_LEASE), OWN),
    "default-profile-twice": (configuration(profile(), profile("default-scheduler")), LintTarget()),
    "differing-queue-sort": (
        configuration(
            profile(),
            profile("b", plugins={"queueSort": {"enabled": [{"name": "QOSSort"}], "disabled": [{"name": "*"}]}}),
        ),
        LintTarget(),
    ),
    "duplicate-profile": (configuration(profile(), profile()), LintTarget()),
    "no-leader-election": (configuration(leaderElection={"leaderElect": False}), LintTarget()),
    "lease-clash": (configuration(**CLUSTERS_LEASE), LintTarget()),
    "filter-off": (
        configuration(
            profile(plugins={"multiPoint": {"disabled": [{"name": "InterPodAffinity"}, {"name": "ImageLocality"}]}})
        ),
        LintTarget(),
    ),
    "image-locality-on": (configuration(profile(plugins={})), LintTarget()),
    "default-constraints-lost": (
        configuration(profile(pluginConfig=[{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}])),
        LintTarget(),
    ),
    "few-nodes-scored": (configuration(percentageOfNodesToScore=10), LintTarget()),
    "extender-not-ignorable": (configuration(extenders=[{"urlPrefix": "http://127.0.0.1:1"}]), LintTarget()),
}


@pytest.mark.parametrize("code", TRAPS)
def test_each_trap_is_found_alone(code: str) -> None:
    written, scheduler = TRAPS[code]

    assert codes(written, scheduler) == [code]


def test_nothing_is_wrong_with_a_good_configuration() -> None:
    assert codes(configuration()) == []
    assert codes(configuration(profile(), profile("default-scheduler"), **CLUSTERS_LEASE), OWN) == []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"Parallelism": 3}, ("Parallelism",)),
        ({"metadata": {"name": "a"}}, ("metadata",)),
        ({"extenders": [{"ignorable": True, "url": "a"}]}, ("extenders", 0, "url")),
        ({"percentageOfNodesToScore": "100"}, ("percentageOfNodesToScore",)),
        (
            {
                "profiles": [
                    profile(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"typ": 1}}}])
                ]
            },
            ("profiles", 0, "pluginConfig", 0, "args", "scoringStrategy", "typ"),
        ),
    ],
)
def test_fields_that_the_scheduler_does_not_decode(more: Json, path: tuple[str | int, ...]) -> None:
    (problem,) = lint(Document(configuration(**{"profiles": [profile()], **more}), "f.yaml", 1), BESIDE)
    assert (problem.code, problem.severity, problem.path) == ("invalid-field", "error", path)


def test_plugins_that_a_scheduler_is_built_with() -> None:
    written = configuration(profile(plugins={"score": {"enabled": [{"name": "Own"}], "disabled": [{"name": "*"}]}}))

    assert "unknown-plugin" in codes(written)
    for plugins in (("Own",), None):
        assert "unknown-plugin" not in codes(written, LintTarget(plugins=plugins))
    (disabled,) = lint(Document(configuration(profile(**off("score", "Own"))), "f.yaml", 1), BESIDE)
    assert (disabled.code, disabled.severity) == ("unknown-plugin", "warning")


def test_a_score_that_is_off_is_no_filter_that_is_off() -> None:
    assert codes(configuration(profile(**off("score", "InterPodAffinity", "TaintToleration")))) == []


def test_each_lost_filter_is_a_problem_of_its_own() -> None:
    found = codes(configuration(profile(plugins={"filter": {"disabled": [{"name": "*"}]}} | off("score")["plugins"])))

    assert found == ["filter-off"] * 5


def test_only_the_profile_for_vms_has_to_be_right_for_them() -> None:
    others = profile("default-scheduler", plugins={})

    assert codes(configuration(profile(), others, **CLUSTERS_LEASE), OWN) == []


@pytest.mark.golden
def test_the_texts() -> None:
    golden_files.check(
        "scheduler-lint.txt",
        "\n".join(
            f"[{one.code}] {one.severity}: {one.text}\n  {one.consequence}.\n  {one.remedy}."
            for written, scheduler in TRAPS.values()
            for one in lint(Document(written, "f.yaml", 1), scheduler)
        ),
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(
    st.dictionaries(
        st.sampled_from(["profiles", "extenders", "leaderElection", "percentageOfNodesToScore", "apiVersion"]), values
    )
)
def test_configurations_of_any_shape_have_an_answer(written: Json) -> None:
    assert "no-profile" in codes(written)
