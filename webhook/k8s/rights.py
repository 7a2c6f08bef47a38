"""What an account must be permitted, as values: policies and parts say so, and roles are made of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec

from webhook.k8s.resources import Resource

# In the order in which a rule has them.
_VERBS: Final = ("get", "list", "watch", "create", "patch", "delete")


class Permission(NamedTuple):
    """One verb on one resource; the name is empty where it is for all objects."""

    verb: str
    group: str
    resource: str
    name: str


class Right(msgspec.Struct, frozen=True):
    """What an account must be permitted, and why: a rule of a role (rbac/v1 PolicyRule).

    Attributes:
        group: API group; empty: the core group.
        resources: plural names.
        verbs: of `get`, `list`, `watch`, `create`, `patch` and `delete`.
        why: what it is for, if its role does not say so: a clause, for the comment of the rule.
        names: of the only objects; empty: all.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str = ""
    names: tuple[str, ...] = ()

    @classmethod
    def on(cls, *resources: Resource[Any], verbs: tuple[str, ...], why: str = "", names: tuple[str, ...] = ()) -> Right:
        """The right to resources of one API group."""
        (group,) = {resource.group for resource in resources}
        return cls(group, tuple(resource.plural for resource in resources), verbs, why, names)

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """All that it permits."""
        objects = product((self.group,), self.resources, self.verbs, self.names or ("",))
        return tuple(Permission(verb, group, resource, name) for group, resource, verb, name in objects)

    @property
    def rule(self) -> dict[str, Any]:
        """The rule."""
        named = {"resourceNames": list(self.names)} if self.names else {}
        return {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            **named,
            "verbs": sorted(self.verbs, key=_VERBS.index),
        }


def joined(rights: Iterable[Right]) -> tuple[Right, ...]:
    """The same rights with one for each resource, or for several that are needed alike, in the order of the first.

    What several need is there once, with all the verbs and each reason.
    """
    needed: dict[tuple[str, str, tuple[str, ...]], tuple[dict[str, None], dict[str, None]]] = {}
    for right in rights:
        for resource in right.resources:
            verbs, reasons = needed.setdefault((right.group, resource, right.names), ({}, {}))
            verbs.update(dict.fromkeys(right.verbs))
            reasons[right.why] = None
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...], str], list[str]] = {}
    for (group, resource, names), (verbs, reasons) in needed.items():
        key = group, names, tuple(sorted(verbs, key=_VERBS.index)), "; ".join(reasons)
        alike.setdefault(key, []).append(resource)
    return tuple(
        Right(group, tuple(resources), verbs, why, names) for (group, names, verbs, why), resources in alike.items()
    )
