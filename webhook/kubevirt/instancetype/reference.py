"""A reference to an instancetype or preference as people write it: ``NAME``, cluster-wide, or ``KIND/NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.admission.step_budget import spend
from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.conflict import Rejection
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, Matcher

_LONGEST = 253


@dataclass(frozen=True, slots=True)
class SpecReference:
    """One of the four kinds, in full, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def matcher(self) -> Json:
        """The matcher that names the same object in a VM.

        A cluster-wide kind is left out, since it is KubeVirt's default: a kind in the matcher would be kept when its
        owner names another object, since all appliers merge into what is there.
        """
        return {"name": self.name} if self.is_cluster_wide else {"kind": self.kind, "name": self.name}

    @property
    def is_cluster_wide(self) -> bool:
        """Whether it is of a kind without namespaces."""
        return self.kind in (INSTANCETYPE_MATCHER.cluster, PREFERENCE_MATCHER.cluster)


def parse(matcher: Matcher, text: str, where: str) -> SpecReference:
    """What a text refers to.

    Args:
        matcher: which of the two is meant.
        text: ``NAME`` or ``KIND/NAME``; kinds as KubeVirt accepts them: in any case, singular or plural.
        where: the text's place, for messages.

    Raises:
        InputError: it is neither, or the kind is none of the matcher's.
    """
    kind, slash, name = text.rpartition("/")
    if not name or max(len(kind), len(name)) > _LONGEST or (slash and not kind) or text.split() != [text]:
        raise InputError(f'"{text[:60]}" is neither NAME nor KIND/NAME', where, f"name a {matcher.namespaced} so")
    return SpecReference(_kind(matcher, kind, where), name)


def of_matcher(matcher: Matcher, given: Json) -> SpecReference:
    """What a VM's matcher refers to, decoded or as its owner wrote it: null says nothing, as in Go.

    Raises:
        Rejection: its kind is unknown.
    """
    return SpecReference(matcher.kind_of(given.get("kind") or ""), given.get("name") or "")


def is_allowed(patterns: Sequence[str], matcher: Matcher, reference: SpecReference) -> bool:
    """Whether a reference is on a list of patterns: references in whose names ``*`` stands for any characters.

    A pattern of an unknown kind allows nothing.
    """
    spend(len(patterns), "patterns of the namespace's allow-list")
    # Nothing has a longer name, and each pattern would be looked for in all of it.
    return len(reference.name) <= _LONGEST and any(_matches(pattern, matcher, reference) for pattern in patterns)


def _matches(pattern: str, matcher: Matcher, reference: SpecReference) -> bool:
    kind, _, name = pattern.rpartition("/")
    try:
        wanted = matcher.kind_of(kind)
    except Rejection:
        return False
    return wanted == reference.kind and _fits(name, reference.name)


def _fits(pattern: str, name: str) -> bool:
    """Whether a name is a pattern's; in time that both lengths bound, for namespaces write patterns of any length."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for part in middle:
        # The first place is the best one: it leaves most to the rest.
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return at + len(last) <= len(name) and name.endswith(last)


def _kind(matcher: Matcher, kind: str, where: str) -> str:
    try:
        return matcher.kind_of(kind)
    except Rejection as rejection:
        fix = f"write {matcher.cluster} or {matcher.namespaced}"
        raise InputError(rejection.what, where, fix) from None
