"""Where every field of an object came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final


class Origin(Enum):
    """Who set a field; the value is the name that people read."""

    VM = "vm"
    INSTANCETYPE = "instancetype"
    PREFERENCE = "preference"
    KUBEVIRT = "KubeVirt default"
    CLUSTER = "cluster settings"


# Told by the functions that change an object, right after a change.
Note = Callable[[Origin], None]


def ignore(origin: Origin) -> None:
    """The `Note` of those who don't want to know."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of an object's leaves; an empty object or list is one.

    Paths read like ``spec.domain.devices.disks[0].name``; a key with a dot or slash stands in brackets.
    """
    if isinstance(value, dict) and value:
        for key, item in value.items():
            plain = not set(key) & set("./[]")
            yield from leaves(item, f"{path}.{key}".removeprefix(".") if plain else f"{path}[{key}]")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


class Origins:
    """Watches an object while it is built, and remembers who set which leaf.

    Args:
        watched: the object; what it holds now came from ``origin``.
        origin: of what it holds now.
    """

    def __init__(self, watched: Any, origin: Origin = Origin.VM) -> None:
        self._watched: Final = watched
        self._seen = dict(leaves(watched))
        self._origins = dict.fromkeys(self._seen, origin)

    def note(self, origin: Origin) -> None:
        """Everything that has changed since the last call came from this origin."""
        seen = dict(leaves(self._watched))
        absent = object()
        self._origins = {
            path: self._origins[path] if self._seen.get(path, absent) == value else origin
            for path, value in seen.items()
        }
        self._seen = seen

    def by_path(self, value: Any = None) -> dict[str, Origin]:
        """The origin of every leaf by its path.

        Args:
            value: the object as it was written in the end; its leaves are reported, those that only Go's encoding made
                as KubeVirt's. None: the watched object as it is.
        """
        if value is None:
            return dict(self._origins)
        return {path: self._origins.get(path, Origin.KUBEVIRT) for path, _ in leaves(value)}
