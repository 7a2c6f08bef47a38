"""Where every field of an object came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from webhook.kubevirt.go_json.structs import copy_json


class FieldOrigin(Enum):
    """Who set a field; the value is the name that people read."""

    VM = "vm"
    INSTANCETYPE = "instancetype"
    PREFERENCE = "preference"
    KUBEVIRT = "KubeVirt default"
    CLUSTER = "cluster settings"
    WEBHOOK = "kubevirt-webhook"


# Called by the functions that change an object, right after a change.
Note = Callable[[FieldOrigin], None]


def ignore(origin: FieldOrigin) -> None:
    """The `Note` of a caller that does not need origins."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of an object's leaves; an empty object or list is one.

    Paths read like ``spec.domain.devices.disks[0].name``; a key with a dot or slash stands in brackets.
    """
    if isinstance(value, dict | list) and value:
        for below, item in children(value, path):
            yield from leaves(item, below)
    else:
        yield path, value


def children(value: dict[str, Any] | list[Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of an object's or list's own members; paths as in `leaves`."""
    if isinstance(value, dict):
        for key, item in value.items():
            plain = not set(key) & set("./[]")
            yield f"{path}.{key}".removeprefix(".") if plain else f"{path}[{key}]", item
    else:
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item


class Origins:
    """Watches an object while it is built, and remembers who set which leaf.

    Watching is cheap, a copy for each change; the paths are computed only by `by_path`.

    Args:
        watched: the object, decoded; its present content came from the VM.
        source: the plain JSON that was decoded into it, which lacks what only Go's structs bring; None: the struct
            brought nothing.
    """

    def __init__(self, watched: Any, source: Any = None) -> None:
        self._watched: Final = watched
        self._states: Final[_States] = [
            (FieldOrigin.VM, copy_json(watched) if source is None else _common(watched, source))
        ]
        self._earlier: tuple[Origins, str] | None = None
        self.note(FieldOrigin.KUBEVIRT)

    def note(self, origin: FieldOrigin) -> None:
        """Everything that has changed since the last call came from this origin."""
        if self._watched != self._states[-1][1]:
            self._states.append((origin, copy_json(self._watched)))

    def inherit(self, earlier: Origins, prefix: str = "") -> None:
        """What came from the VM came from wherever the VM had it, at a path that begins with ``prefix``."""
        self._earlier = earlier, prefix

    def by_path(self, value: Any = None) -> dict[str, FieldOrigin]:
        """The origin of every leaf, by its path, of the watched object.

        Of an object as it was written in the end, ``value``, the leaves that only Go's encoding made are KubeVirt's.
        """
        origins = dict(_leaves(self._states[-1][1] if value is None else value, "", self._states))
        if self._earlier is None:
            return origins
        earlier, prefix = self._earlier
        before = earlier.by_path()
        return {
            path: before.get(f"{prefix}{path}", origin) if origin is FieldOrigin.VM else origin
            for path, origin in origins.items()
        }


# What stood in one place, oldest first, and who put it there.
_States = list[tuple[FieldOrigin, Any]]
_ABSENT: Final = object()


def _leaves(value: Any, path: str, states: _States) -> Iterator[tuple[str, FieldOrigin]]:
    """The origins of a value's leaves: of each the last who changed what stands there."""
    states = states[:1] + [later for before, later in pairwise(states) if before[1] != later[1]]
    if not isinstance(value, dict | list) or not value:
        origin, last = states[-1]
        made_by_encoding = last is _ABSENT or (isinstance(last, dict | list) and last)
        yield path, FieldOrigin.KUBEVIRT if made_by_encoding else origin
        return
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key, (below, item) in zip(keys, children(value, path), strict=True):
        yield from _leaves(item, below, [(origin, _member(state, key)) for origin, state in states])


def _common(decoded: Any, source: Any) -> Any:
    """A copy of what both sides hold, as it was decoded."""
    if isinstance(decoded, dict) and isinstance(source, dict):
        both = {key: item for key, item in decoded.items() if source.get(key) is not None}
        return {key: _common(item, source[key]) for key, item in both.items()}
    if isinstance(decoded, list) and isinstance(source, list):
        return [_common(item, before) for item, before in zip(decoded, source, strict=True)]
    return copy_json(decoded)


def _member(state: Any, key: Any) -> Any:
    if isinstance(state, dict):
        return state.get(key, _ABSENT)
    return state[key] if isinstance(state, list) and type(key) is int and key < len(state) else _ABSENT
