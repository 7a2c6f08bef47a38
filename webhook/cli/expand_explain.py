"""The origin of every field of an object: as text, grouped by origin, and as plain JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from webhook.cli.show import safe
from webhook.kubevirt.go_json.origins import Origin, children, leaves
from webhook.kubevirt.vm.creation import Created, Named
from webhook.text import pluralize

# Added fields come first; users know those that they set.
_ORDER: Final = (Origin.INSTANCETYPE, Origin.PREFERENCE, Origin.CLUSTER, Origin.KUBEVIRT, Origin.VM)
_STYLES: Final = {
    Origin.INSTANCETYPE: "green",
    Origin.PREFERENCE: "cyan",
    Origin.CLUSTER: "yellow",
    Origin.KUBEVIRT: "magenta",
    Origin.VM: "dim",
}
# The headline shows them.
_IN_HEADLINE: Final = frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace"})
_LONGEST: Final = 72
_WIDEST: Final = 24
_STAND_IN: Final = "random in KubeVirt; here derived from the name"
_PLAIN: Final = re.compile(r"[\w./:@+<-][^\"\n]*")
_AMBIGUOUS: Final = re.compile(r"true|false|null|[-+]?[\d.]+([eE][-+]?\d+)?|.*\s")
# KubeVirt's own bookkeeping, one row for each unless another origin set a part of it.
_BOOKKEEPING: Final = ("status", "metadata.ownerReferences", "metadata.finalizers")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of an object.

    Attributes:
        value: plain JSON; an empty object or list is a leaf.
        stand_in: KubeVirt generates the value at random, so it will be different.
    """

    path: str
    value: Any
    origin: Origin
    stand_in: bool


class Explanation:
    """An object with the origins of its fields.

    Args:
        created: what to explain.
        shown: the object as it may be shown, without secrets.
        where: the document that it was made from.
        cluster: where the cluster's settings come from, as a clause.
        stand_ins: values that stand for random ones.
    """

    def __init__(
        self, created: Created, shown: Mapping[str, Any], where: str, cluster: str, stand_ins: Collection[str]
    ) -> None:
        self._created = created
        self.shown: Final = shown
        self._where = where
        self._cluster = cluster
        self._stand_ins = stand_ins
        self._own: Final = "vmi" if _from_vmi(created) else "vm"

    def fields(self) -> Iterator[Leaf]:
        """All leaves, in the object's order."""
        origins = self._created.origins
        for path, value in leaves(self.shown):
            # Where a secret hides more than a leaf, all of it came from the same place.
            origin = origins.get(path) or next((o for p, o in origins.items() if p.startswith(path)), Origin.VM)
            yield Leaf(path, value, origin, isinstance(value, str) and value in self._stand_ins)

    def label(self, origin: Origin) -> str:
        """The origin with the name of its object."""
        named = self._created.named.get(origin)
        return self._own if origin is Origin.VM else f"{origin.value} {named.name}" if named else origin.value

    def as_json(self) -> dict[str, Any]:
        """The object, the objects that were applied to it, and its fields with their origins."""
        return {
            "source": self._where,
            "object": self.shown,
            "settings": self._cluster,
            **{origin.value: _named_to_json(named) for origin, named in self._created.named.items()},
            "fields": [self._field_json(item) for item in self.fields()],
        }

    def _field_json(self, item: Leaf) -> dict[str, Any]:
        named = self._created.named.get(item.origin)
        origin = self._own if item.origin is Origin.VM else item.origin.value
        return {
            "path": item.path,
            "value": item.value,
            "origin": origin,
            **({"name": named.name} if named else {}),
            **({"random": True} if item.stand_in else {}),
        }

    def print(self, out: Console) -> None:
        """Print the fields as text, a group for each origin; the object's own fields are abbreviated."""
        metadata = self.shown["metadata"]
        title = f"{self.shown['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        out.print(Text.assemble((safe(title), "bold"), (safe(f"  from {self._where}"), "dim")))
        for origin, named in self._created.named.items():
            out.print(Text(safe(f"  {origin.value:<13} {named.name}, {_in_words(named)}")))
        out.print(Text(safe(f"  {'settings':<13} {self._cluster}")))
        items = [item for item in self.fields() if item.path not in _IN_HEADLINE]
        for origin in _ORDER:
            group = [item for item in items if item.origin is origin]
            if group:
                self._print_group(out, origin, group)

    def _print_group(self, out: Console, origin: Origin, group: list[Leaf]) -> None:
        label, count = self.label(origin), pluralize(len(group), "field")
        out.print(Text.assemble("\n", (safe(label), f"bold {_STYLES[origin]}"), (f"  {count}", "dim")))
        own = {item.path: f" ({_STAND_IN})" if item.stand_in else "" for item in group}
        whole = ("",) if origin is Origin.VM else _BOOKKEEPING if origin is Origin.KUBEVIRT else ()
        rows = [*_rows(self.shown, own, whole)]
        left = max(len(safe(path)) for path, _ in rows)
        right = max((len(text) for _, text in rows if len(text) <= _WIDEST), default=0)
        for path, text in rows:
            line = Text.assemble("  ", f"{safe(path):<{left}}", (" = ", "dim"), f"{text:<{right}}")
            line.append(safe(f"  ← {label}"), style=f"dim {_STYLES[origin]}")
            out.print(line)


def _from_vmi(created: Created) -> bool:
    owners = created.obj["metadata"].get("ownerReferences", [])
    made = any(owner["kind"] == "VirtualMachine" for owner in owners)
    return created.obj["kind"] == "VirtualMachineInstance" and not made


def _named_to_json(named: Named) -> dict[str, str]:
    return {
        "kind": named.kind,
        "name": named.name,
        **({"inferredFromVolume": named.volume} if named.volume else {}),
        **({"controllerRevision": named.revision} if named.revision else {}),
    }


def _in_words(named: Named) -> str:
    volume = f", inferred from volume {named.volume}" if named.volume else ""
    revision = f", as stored in ControllerRevision {named.revision}" if named.revision else ""
    return f"{named.kind}{volume}{revision}"


def _rows(value: Any, own: Mapping[str, str], whole: tuple[str, ...], path: str = "") -> Iterator[tuple[str, str]]:
    """The fields that came from one origin.

    Args:
        value: plain JSON: the object, or a part of it.
        own: the paths of the fields of that origin, with a remark on each.
        whole: below these paths, a value that is all of that origin is one row.
        path: the path of ``value``; empty: the whole object.
    """
    if not isinstance(value, dict | list) or not value:
        if path in own:
            yield path, f"{_text(value)}{own[path]}"
        return
    below = [leaf for leaf, _ in leaves(value, path)] if path.startswith(whole) and path else []
    if len(below) > 1 and all(leaf in own for leaf in below):
        yield path, f"… {pluralize(len(below), 'field')}"
        return
    for child, item in children(value, path):
        yield from _rows(item, own, whole, child)


def _text(value: Any) -> str:
    """A value as YAML shows it, on one line."""
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and not _AMBIGUOUS.fullmatch(value)
    text = safe(value if plain else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
