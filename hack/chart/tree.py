"""Templates of YAML: many variants of one object become one template whose conditions choose among them.

A *knob* is a fact that is true or false when the chart is rendered, such as `openshift`. A *variant* is an object for
one assignment of all knobs. Nothing here knows what the objects are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

Assignment = tuple[bool, ...]
Variants = Mapping[Assignment, Any]

# The key of a mapping under which `ChartEntries` stand.
MORE: Final = "\0more"
# Words that some YAML parser reads as something else than a string.
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


@dataclass(frozen=True)
class ChartValue:
    """A scalar that the template computes.

    Attributes:
        expression: the Go template's expression.
    """

    expression: str


@dataclass(frozen=True)
class Override:
    """A value that the chart's user may set.

    Attributes:
        expression: the user's value; it counts if it is not empty.
        default: what is there otherwise; None: the key is left out.
    """

    expression: str
    default: Any = None


@dataclass(frozen=True)
class ChartEntries:
    """Further entries of a mapping, or items of a list, that the template computes.

    Attributes:
        expression: a mapping or list; nothing is added if it is empty.
    """

    expression: str


class ChartTemplate:
    """Writes variants as one template.

    Args:
        knobs: the names of the knobs, in the order of the assignments.
        prefix: what stands before a knob's name in conditions.
        substitutes: parts of strings, and the expressions that stand for them in the template.
    """

    def __init__(self, knobs: Sequence[str], prefix: str, substitutes: Mapping[str, str]) -> None:
        self._knobs: Final = tuple(knobs)
        self._prefix: Final = prefix
        self._substitutes: Final = substitutes

    def document(self, variants: Variants) -> list[str]:
        """The lines of a document; it is left out where its variant is None."""
        present = {assignment: value for assignment, value in variants.items() if value is not None}
        return self._when(present, variants, ["---", *self._mapping(present, 0)])

    def item(self, variants: Variants) -> list[str]:
        """The lines of an item of a list; it is left out where its variant is None."""
        present = {assignment: value for assignment, value in variants.items() if value is not None}
        return self._when(present, variants, self._item(present, 0))

    def _mapping(self, variants: Variants, indent: int) -> list[str]:
        lines = []
        for key in dict.fromkeys(key for value in variants.values() for key in value):
            having = {assignment: value[key] for assignment, value in variants.items() if key in value}
            lines += self._when(having, variants, self._entry(key, having, indent))
        return lines

    def _entry(self, key: str, variants: Variants, indent: int) -> list[str]:
        margin = " " * indent
        values = list(variants.values())
        first = values[0]
        if isinstance(first, ChartEntries):
            return _more(first, indent)
        if isinstance(first, Override):
            return self._override(key, first, indent)
        if all(isinstance(value, dict) and value for value in values):
            return [f"{margin}{self._scalar(key)}:", *self._mapping(variants, indent + 2)]
        if all(isinstance(value, list) and value for value in values):
            return [f"{margin}{self._scalar(key)}:", *self._list(variants, indent + 2)]
        if _same(values):
            return self._leaf(f"{margin}{self._scalar(key)}:", first, indent)
        return self._split(variants, lambda part: self._entry(key, part, indent))

    def _override(self, key: str, value: Override, indent: int) -> list[str]:
        margin = " " * indent
        lines = [f"{margin}{{{{- with {value.expression} }}}}", f"{margin}{key}:"]
        lines.append(f"{margin}  {{{{- toYaml . | nindent {indent + 2} }}}}")
        if value.default is not None:
            lines += [f"{margin}{{{{- else }}}}", *self._entry(key, {(): value.default}, indent)]
        return [*lines, f"{margin}{{{{- end }}}}"]

    def _list(self, variants: Variants, indent: int) -> list[str]:
        lines = []
        found = {
            assignment: {_identity(item): item for item in items if not isinstance(item, ChartEntries)}
            for assignment, items in variants.items()
        }
        for key in _merged([list(items) for items in found.values()]):
            having = {assignment: items[key] for assignment, items in found.items() if key in items}
            lines += self._when(having, variants, self._item(having, indent))
        further = {
            assignment: one for assignment, items in variants.items() for one in items if isinstance(one, ChartEntries)
        }
        if further:
            lines += self._when(further, variants, _more(next(iter(further.values())), indent))
        return lines

    def _item(self, variants: Variants, indent: int) -> list[str]:
        margin = " " * indent
        first = next(iter(variants.values()))
        if isinstance(first, dict):
            inner = self._mapping(variants, indent + 2)
            if inner[0].lstrip().startswith("{{"):
                raise ValueError(f"the first key of a list's item is conditional: {inner[0]}")
            return [f"{margin}- {inner[0].lstrip()}", *inner[1:]]
        return self._leaf(f"{margin}-", first, indent)

    def _leaf(self, head: str, value: Any, indent: int) -> list[str]:
        if isinstance(value, str) and "\n" in value:
            keep = "|" if value.endswith("\n") else "|-"
            body = [
                f"{' ' * (indent + 2)}{line}".rstrip() for line in self._substituted(value).rstrip("\n").split("\n")
            ]
            return [f"{head} {keep}", *body]
        return [f"{head} {self._scalar(value)}"]

    def _scalar(self, value: Any) -> str:
        if isinstance(value, ChartValue):
            return f"{{{{ {value.expression} }}}}"
        if not isinstance(value, str):
            return json.dumps(value)
        text = self._substituted(value)
        if re.fullmatch(r"[A-Za-z][\w./-]*", text) and text.lower() not in _WORDS:
            return text
        return "'" + text.replace("'", "''") + "'"

    def _substituted(self, text: str) -> str:
        text = text.replace("{{", '{{ "{{" }}')
        for part, expression in self._substitutes.items():
            text = text.replace(part, f"{{{{ {expression} }}}}")
        return text

    def _when(self, having: Variants, among: Variants, lines: list[str]) -> list[str]:
        if len(having) == len(among):
            return lines
        margin = _margin(lines)
        return [f"{margin}{{{{- if {self._condition(having, among)} }}}}", *lines, f"{margin}{{{{- end }}}}"]

    def _condition(self, having: Iterable[Assignment], among: Iterable[Assignment]) -> str:
        """The shortest condition that is true for some assignments and false for the others."""
        wanted, everything = set(having), list(among)
        literals: dict[str, Callable[[Assignment], bool]] = {}
        for index, name in enumerate(self._knobs):
            literals[f"{self._prefix}{name}"] = lambda one, index=index: one[index]  # type: ignore[misc]
            literals[f"(not {self._prefix}{name})"] = lambda one, index=index: not one[index]  # type: ignore[misc]
        for size in (1, 2, 3):
            for operator, holds in (("and", all), ("or", any)):
                for parts in combinations(literals.items(), size):
                    if {one for one in everything if holds(test(one) for _, test in parts)} == wanted:
                        texts = [text for text, _ in parts]
                        return texts[0].strip("()") if size == 1 else f"{operator} {' '.join(texts)}"
        raise ValueError(f"no simple condition for {sorted(wanted)} of {self._knobs}")

    def _split(self, variants: Variants, write: Callable[[Variants], list[str]]) -> list[str]:
        """An if and an else on a knob that makes a difference."""
        for index, name in enumerate(self._knobs):
            on = {one: value for one, value in variants.items() if one[index]}
            off = {one: value for one, value in variants.items() if not one[index]}
            if on and off and any(_other(one, index) in off and off[_other(one, index)] != on[one] for one in on):
                lines = write(on)
                margin = _margin(lines)
                return [
                    f"{margin}{{{{- if {self._prefix}{name} }}}}",
                    *lines,
                    f"{margin}{{{{- else }}}}",
                    *write(off),
                    f"{margin}{{{{- end }}}}",
                ]
        raise ValueError(f"nothing distinguishes {list(variants.values())}")


def enumerate_variants(knobs: Sequence[str], make: Callable[[Mapping[str, bool]], Any]) -> tuple[list[str], Variants]:
    """The knobs on which a result depends, and the result for every assignment of them.

    Args:
        knobs: the names of all knobs.
        make: the result for an assignment.
    """
    bases = [dict.fromkeys(knobs, value) for value in (False, True)]
    relevant = [knob for knob in knobs if any(make(base) != make({**base, knob: not base[knob]}) for base in bases)]
    others = bases[0]
    variants = {
        values: make({**others, **dict(zip(relevant, values, strict=True))})
        for values in product((False, True), repeat=len(relevant))
    }
    return relevant, variants


def _more(entries: ChartEntries, indent: int) -> list[str]:
    margin = " " * indent
    return [
        f"{margin}{{{{- with {entries.expression} }}}}",
        f"{margin}{{{{- toYaml . | nindent {indent} }}}}",
        f"{margin}{{{{- end }}}}",
    ]


def _margin(lines: Sequence[str]) -> str:
    return lines[0][: len(lines[0]) - len(lines[0].lstrip())]


def _other(assignment: Assignment, index: int) -> Assignment:
    return (*assignment[:index], not assignment[index], *assignment[index + 1 :])


def _same(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _identity(item: Any) -> str:
    """What an item of a list is called in all variants: its name, else its content."""
    if isinstance(item, dict) and "name" in item:
        return str(item["name"])
    return json.dumps(item, sort_keys=True, default=repr)


def _merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """The items of all lists, in an order that agrees with each of the given ones.

    Raises:
        ValueError: two orders contradict each other.
    """
    result: list[str] = []
    for order in orders:
        position = 0
        for name in order:
            if name in result:
                position = result.index(name) + 1
            else:
                result.insert(position, name)
                position += 1
    for order in orders:
        places = [result.index(name) for name in order]
        if places != sorted(places):
            raise ValueError(f"variants have different orders: {orders}")
    return result
