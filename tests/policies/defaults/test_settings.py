"""What a file and a namespace may say, and what they hear of a mistake."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import Json
from tests.policies.defaults.world import GPU, PREFERRED, REQUIRED, SECTION, decide, encoded, section, vmi
from webhook.errors import InputErrors
from webhook.policies.defaults import reasons
from webhook.policies.defaults.settings import ANNOTATIONS, TEXTS, DefaultsSettings
from webhook.settings_file import parse

ROWS = {name: SECTION[DefaultsSettings.model_fields[name].alias or name] for name in ANNOTATIONS}
EMPTY = section(clusterWide=False)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else encoded(value)


def test_a_file_and_annotations_say_the_same() -> None:
    by_file = parse(yaml.safe_dump({"defaults": SECTION}).encode(), "x").of(DefaultsSettings)
    by_annotations = EMPTY.with_annotations({ANNOTATIONS[name]: f" {text_of(value)}\n" for name, value in ROWS.items()})
    for name in ROWS:
        assert getattr(by_annotations, name) == getattr(by_file, name) != getattr(EMPTY, name)
    assert not by_annotations.annotation_mistakes


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_off_is_none_and_an_empty_annotation_says_nothing(name: str) -> None:
    settings = section()
    assert getattr(settings.with_annotations({ANNOTATIONS[name]: "off"}), name) == getattr(EMPTY, name)
    assert settings.with_annotations({ANNOTATIONS[name]: " "}) is settings


def test_a_namespace_has_its_own_rows_though_those_of_the_settings_were_used_before() -> None:
    used = section(clusterWide=False)
    assert (used.plain_tolerations, used.plain_preferences) == ([], [])
    own = used.with_annotations({ANNOTATIONS[name]: text_of(ROWS[name]) for name in ("tolerations", "node_affinity")})
    assert (own.plain_tolerations, own.plain_preferences) == ([GPU], SECTION["nodeAffinity"][PREFERRED])


MISTAKES: list[tuple[str, Any, str]] = [
    ("tolerations", [{"key": "gpu"}], "operator"),
    ("tolerations", [GPU | {"value": "a"}], "Equal"),
    ("tolerations", [{"operator": "Equal"}], "no key"),
    ("tolerations", [GPU | {"tolerationSeconds": 5}], "NoExecute"),
    ("tolerations", [GPU | {"effect": "Never"}], "Never"),
    ("tolerations", [GPU | {"efect": "NoSchedule"}], "efect"),
    ("tolerations", {}, "list"),
    ("node_selector", {"a b": "c"}, "label key"),
    ("node_selector", {"zone": 1}, "string"),
    ("node_selector", [], "mapping"),
    ("node_affinity", {REQUIRED: {"nodeSelectorTerms": []}}, "0 terms"),
    ("node_affinity", {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}}, "no node"),
    ("node_affinity", {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [GPU]}] * 2}}, "effect"),
    ("node_affinity", {PREFERRED: [{"weight": 0, "preference": {"matchExpressions": []}}]}, "1"),
    ("priority_class_name", "Not_A_Name", "PriorityClass"),
    ("eviction_strategy", "Live", 'must be "", None, LiveMigrate, LiveMigrateIfPossible or External, not "Live"'),
    ("termination_grace_period_seconds", -1, "must be from 0 to"),
    ("termination_grace_period_seconds", "soon", ""),
    ("cpu_model", "a b", "CPU model"),
]


@pytest.mark.parametrize(("operator", "values"), [("In", []), ("Gt", ["a"]), ("Lt", ["1", "2"]), ("Exists", ["a"])])
def test_values_go_with_operators(operator: str, values: list[str]) -> None:
    expression: Json = {"key": "a", "operator": operator, "values": values}
    affinity = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    changed = EMPTY.with_annotations({ANNOTATIONS["node_affinity"]: encoded(affinity)})
    assert f"operator {operator}" in changed.annotation_mistakes[ANNOTATIONS["node_affinity"]]
    assert changed.node_affinity == EMPTY.node_affinity


@pytest.mark.control("annotations-with-defaults")
@pytest.mark.parametrize(("name", "value", "said"), MISTAKES)
def test_a_mistake_is_denied_in_a_file_and_ignored_in_a_namespace(name: str, value: Any, said: str) -> None:
    field = DefaultsSettings.model_fields[name].alias or name
    with pytest.raises(InputErrors) as denied:
        parse(yaml.safe_dump({"events": "on", "defaults": {field: value}}).encode(), "settings.yaml")
    assert all(str(each).startswith("settings.yaml:") for each in denied.value.mistakes), "with the line"
    settings = section()
    changed = settings.with_annotations({ANNOTATIONS[name]: text_of(value)})
    assert changed.annotation_mistakes.keys() == {ANNOTATIONS[name]}
    assert said in changed.annotation_mistakes[ANNOTATIONS[name]]
    assert getattr(changed, name) == getattr(settings, name), "the cluster's default counts"
    decision = decide(vmi(), changed)
    assert reasons.INVALID in {warning.code for warning in decision.warnings}
    assert decision.changes


@pytest.mark.control("annotations-with-defaults")
@pytest.mark.parametrize("text", ["{", "[" * 5000, "[]]", "x" * 20_000])
@pytest.mark.parametrize("name", ["tolerations", "node_selector", "termination_grace_period_seconds"])
def test_what_is_no_json_is_said(name: str, text: str) -> None:
    changed = EMPTY.with_annotations({ANNOTATIONS[name]: text})
    assert changed.annotation_mistakes.keys() == {ANNOTATIONS[name]}
    # An annotation that nobody follows is warned of where there is no default, too.
    assert [warning.code for warning in decide(vmi(), changed).warnings] == [reasons.INVALID]


@pytest.mark.parametrize("name", sorted(ANNOTATIONS.keys() - TEXTS))
def test_the_example_that_is_named_is_right(name: str) -> None:
    """kubectl's way of writing a label is the usual mistake."""
    said = EMPTY.with_annotations({ANNOTATIONS[name]: "pool=vms"}).annotation_mistakes[ANNOTATIONS[name]]
    _, _, example = said.partition("; use for example ")
    followed = EMPTY.with_annotations({ANNOTATIONS[name]: example})
    assert not followed.annotation_mistakes
    assert getattr(followed, name) != getattr(EMPTY, name)
