"""What a file and a namespace may say, and what they hear of a mistake."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import Json
from tests.policies.groups.world import APART, APART_BY_ZONE, HOSTS, TOGETHER, decide, encoded, pod, section, vm
from webhook.errors import InputErrors
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.policies.groups import reasons
from webhook.policies.groups.settings import GROUPS_ANNOTATION, GroupSettings
from webhook.settings_file import parse

EMPTY = GroupSettings()
RULES: list[Json] = [
    APART,
    APART_BY_ZONE,
    TOGETHER,
    HOSTS,
    {"apart": {}},
    {**APART, "together": {"topologyKey": ZONE}, **HOSTS},
]


def by_file(groups: Json) -> GroupSettings:
    return parse(yaml.safe_dump({"groups": groups}).encode(), "settings.yaml").of(GroupSettings)


@pytest.mark.parametrize("rules", RULES)
def test_a_file_and_an_annotation_say_the_same(rules: Json) -> None:
    in_file = by_file({"rules": {"db": rules}}).group("db", "demo")
    in_namespace = EMPTY.with_annotations({GROUPS_ANNOTATION: f" {encoded({'db': rules})}\n"})
    assert in_file is not None
    assert in_namespace.group("db", "demo") == in_file
    assert not in_namespace.annotation_mistakes


def test_by_default_a_rule_is_about_nodes_and_preferred() -> None:
    rule = by_file({"rules": {"db": {"apart": {}}}}).rules["db"].apart
    assert rule is not None
    assert (rule.topology_key, rule.required) == (HOSTNAME, False)


class TestScope:
    def test_a_namespace_adds_groups_and_replaces_one_that_spans_nothing(self) -> None:
        settings = section(APART).with_annotations({GROUPS_ANNOTATION: encoded({"db": TOGETHER, "web": APART})})
        assert {name for name in settings.rules if settings.group(name, "demo")} == {"db", "web"}
        assert (found := settings.group("db", "demo")) is not None
        assert found.apart is None

    @pytest.mark.control("groups-across-tenants")
    def test_a_group_that_spans_namespaces_is_none_elsewhere(self) -> None:
        settings = section({**APART, "namespaces": ["demo", "shop"]})
        assert [settings.group("db", each) is not None for each in ("demo", "shop", "other")] == [True, True, False]

    @pytest.mark.control("groups-across-tenants")
    def test_and_no_namespace_replaces_it(self) -> None:
        """Its VMs in other namespaces count the pods with its name."""
        settings = section({**APART, "namespaces": ["demo", "shop"]})
        found = settings.with_annotations({GROUPS_ANNOTATION: encoded({"db": TOGETHER})})
        assert "spans namespaces" in found.annotation_mistakes[GROUPS_ANNOTATION]
        assert found.rules == settings.rules

    @pytest.mark.parametrize("name", ["", "none", None])
    def test_other_names_are_no_group(self, name: str | None) -> None:
        assert section().group(name, "demo") is None

    def test_null_is_no_group(self) -> None:
        found = section(APART).with_annotations({GROUPS_ANNOTATION: "null"})
        assert (found.rules, found.annotation_mistakes) == (section(APART).rules, {})

    def test_an_empty_annotation_says_nothing(self) -> None:
        assert EMPTY.with_annotations({GROUPS_ANNOTATION: " "}) is EMPTY


MISTAKES: list[tuple[Any, str]] = [
    ({"db": {}}, "no rule"),
    ({"db": {"apart": None}}, "no rule"),
    ({"db": {"apart": {"topologyKey": "a b"}}}, "label key"),
    ({"db": {"apart": {"required": "yes"}}}, "required"),
    ({"db": {"nodes": {"required": True}}}, "labels"),
    ({"db": {"nodes": {"labels": {}}}}, "no label"),
    ({"db": {"nodes": {"labels": {"license": "a b"}}}}, "label value"),
    ({"db": {"apart": {}, "together": {}}}, "apart"),
    ({"db": {"apart": {"topologyKey": ZONE}, "together": {}}}, "apart"),
    ({"db": {"aprt": {}}}, "aprt"),
    ({"a b": APART}, "group name"),
    ({"x" * 64: APART}, "63"),
    ([], "mapping"),
    ({"db": 3}, "mapping"),
]


@pytest.mark.parametrize(("rules", "said"), MISTAKES)
def test_a_mistake_is_denied_in_a_file_and_ignored_in_a_namespace(rules: Any, said: str) -> None:
    with pytest.raises(InputErrors) as denied:
        by_file({"rules": rules})
    assert all(str(each).startswith("settings.yaml:") for each in denied.value.mistakes), "with the line"
    settings = section().with_annotations({GROUPS_ANNOTATION: encoded(rules)})
    assert said in settings.annotation_mistakes[GROUPS_ANNOTATION]
    assert settings.rules == section().rules, "the settings' groups count"
    for obj in (pod(), vm({GROUP_LABEL: "db"})):
        assert reasons.INVALID in {warning.code for warning in decide(obj, settings).warnings}
    assert decide(pod(), settings).changes


@pytest.mark.parametrize("text", ["{", "[" * 5000, "x" * 20_000, "\ud800"])
def test_what_is_no_json_is_said(text: str) -> None:
    assert section().with_annotations({GROUPS_ANNOTATION: text}).annotation_mistakes


def test_only_a_file_says_which_namespaces_a_group_spans() -> None:
    spanning = {"db": {**APART, "namespaces": ["demo"]}}
    assert EMPTY.with_annotations({GROUPS_ANNOTATION: encoded(spanning)}).annotation_mistakes
    with pytest.raises(InputErrors, match="64"):
        by_file({"rules": {"db": {**APART, "namespaces": [f"n{number}" for number in range(65)]}}})
