from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from hack.chart.tree import MORE, ChartEntries, ChartTemplate, ChartValue, Override, enumerate_variants

KNOBS = ("a", "b", "c")


def written(make: Any) -> list[str]:
    relevant, variants = enumerate_variants(KNOBS, make)
    return ChartTemplate(relevant, "$", {"SENTINEL": ".x"}).document(variants)


def test_what_is_always_the_same_has_no_condition() -> None:
    assert written(lambda _knobs: {"x": [1, {"name": "one", "w": True}], "e": {}}) == [
        "---", "x:", "  - 1", "  - name: one", "    w: true", "e: {}",
    ]  # fmt: skip


def test_only_knobs_that_make_a_difference_count() -> None:
    relevant, variants = enumerate_variants(KNOBS, lambda knobs: {"x": knobs["b"]})

    assert relevant == ["b"]
    assert variants == {(False,): {"x": False}, (True,): {"x": True}}


def test_two_knobs_that_only_matter_together_are_found() -> None:
    relevant, _ = enumerate_variants(KNOBS, lambda knobs: {"x": knobs["a"] and knobs["c"]})

    assert relevant == ["a", "c"]


@pytest.mark.parametrize(("wanted", "condition"), [
    (lambda k: k["a"], "$a"),
    (lambda k: not k["a"], "not $a"),
    (lambda k: k["a"] and not k["b"], "and $a (not $b)"),
    (lambda k: k["a"] or k["c"], "or $a $c"),
])  # fmt: skip
def test_conditions_are_short(wanted: Any, condition: str) -> None:
    lines = written(lambda knobs: {"x": 1, **({"w": 2} if wanted(knobs) else {})})

    assert lines == ["---", "x: 1", f"{{{{- if {condition} }}}}", "w: 2", "{{- end }}"]


def test_a_condition_that_nothing_short_says_is_an_error() -> None:
    def parity(knobs: Mapping[str, bool]) -> Any:
        return {"x": 1, **({"w": 2} if knobs["a"] ^ knobs["b"] else {})}

    with pytest.raises(ValueError, match="no simple condition"):
        written(parity)


def test_an_object_that_is_not_always_there() -> None:
    assert written(lambda knobs: {"x": 1} if knobs["a"] else None) == ["{{- if $a }}", "---", "x: 1", "{{- end }}"]


def test_values_are_chosen() -> None:
    lines = written(lambda knobs: {"x": f"{knobs['a']}"})

    assert lines == ["---", "{{- if $a }}", "x: 'True'", "{{- else }}", "x: 'False'", "{{- end }}"]


def test_items_keep_their_order() -> None:
    def make(knobs: Mapping[str, bool]) -> Any:
        return {"x": [name for name, there in (("one", knobs["a"]), ("two", True), ("three", knobs["b"])) if there]}

    inner = [line.strip() for line in written(make)[2:]]
    assert inner == ["{{- if $a }}", "- one", "{{- end }}", "- two", "{{- if $b }}", "- three", "{{- end }}"]


def test_orders_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="different orders"):
        written(lambda knobs: {"x": ["one", "two"] if knobs["a"] else ["two", "one"]})


def test_places_for_the_charts_values() -> None:
    lines = written(
        lambda _knobs: {
            "x": ChartValue("$v"),
            "w": {"k": "v", MORE: ChartEntries("$more")},
            "z": Override("$z", {"d": 1}),
            "o": Override("$o"),
        }
    )

    assert lines == [
        "---",
        "x: {{ $v }}",
        "w:", "  k: v", "  {{- with $more }}", "  {{- toYaml . | nindent 2 }}", "  {{- end }}",
        "{{- with $z }}", "z:", "  {{- toYaml . | nindent 2 }}", "{{- else }}", "z:", "  d: 1", "{{- end }}",
        "{{- with $o }}", "o:", "  {{- toYaml . | nindent 2 }}", "{{- end }}",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), [
    ("plain", "x: plain"),
    ("off", "x: 'off'"),
    ("8Mi", "x: '8Mi'"),
    ("it's", "x: 'it''s'"),
    ("{{ $labels.x }}", "x: '{{ \"{{\" }} $labels.x }}'"),
    ("of SENTINEL", "x: 'of {{ .x }}'"),
])  # fmt: skip
def test_texts_stay_texts(text: str, line: str) -> None:
    assert written(lambda _knobs: {"x": text}) == ["---", line]


def test_lines_of_a_text() -> None:
    assert written(lambda _knobs: {"x": "a\nb\n"}) == ["---", "x: |", "  a", "  b"]
    assert written(lambda _knobs: {"x": "a\nb"}) == ["---", "x: |-", "  a", "  b"]


def test_every_variant_is_enumerated() -> None:
    _, variants = enumerate_variants(KNOBS, lambda knobs: [knobs[name] for name in KNOBS])

    assert list(variants) == list(product((False, True), repeat=3))
