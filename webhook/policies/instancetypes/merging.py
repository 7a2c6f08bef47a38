"""What an owner's matcher looks like without the rest of the injected default, into which it was merged.

Client-side apply, server-side apply and patches all merge into the matcher that stands in the VM. An owner who applies
``instancetype: {name: u1.medium}``, a cluster-wide one, gets the injected ``kind`` with it, and so another object, or
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.kubevirt.instancetype.find import Matcher, SpecReference
from webhook.policies.common.ownership import Manifests
from webhook.policies.instancetypes import messages
from webhook.policies.instancetypes.lookups import Lookups

# By these a matcher says what it is for.
_CHOICES: Final = frozenset({"name", "inferFromVolume"})


class Merged(msgspec.Struct, frozen=True):
    """An owner's matcher.

    Attributes:
        value: the owner's alone; None: nothing is left of it.
        assumed: what it was taken for, as a sentence; empty where there is no doubt.
    """

    value: Mapping[str, Any] | None
    assumed: str = ""


def separate(
    matcher: Matcher,
    default: Mapping[str, Any],
    given: Mapping[str, Any],
    manifests: Manifests,
    namespace: str,
    lookups: Lookups,
) -> Merged | None:
    """What the owner wrote of a matcher that also holds the injected default; None where the owner chose nothing in it.

    Args:
        matcher: the matcher, of the instancetype or of the preference.
        default: its value before the update, which was injected.
        given: its value now.
        manifests: the manifests of the VM as it is to be.
        namespace: the VM's namespace.
        lookups: the look-ups of the review.
    """
    present = {name: value for name, value in given.items() if value is not None}
    changed = {name for name, value in present.items() if value != default.get(name)}
    declared = {name for name, value in present.items() if manifests.declare(("spec", matcher.field, name), value)}
    if not (changed | declared) & _CHOICES:
        return None if _CHOICES & present.keys() else Merged(None)
    own = {name: value for name, value in present.items() if name in changed | declared}
    certain = declared & _CHOICES or own.keys() & {"inferFromVolume", "kind"} or default.get("kind") is None
    # A name of another type is the API server's to deny.
    if certain or not isinstance(own.get("name"), str):
        return Merged(own)
    return _merge_patched(matcher, own, default["kind"], namespace, lookups)


def _merge_patched(matcher: Matcher, own: dict[str, Any], kind: str, namespace: str, lookups: Lookups) -> Merged:
    """The matcher after a patch of its name alone, where no manifest shows whether the injected kind is to be kept."""
    name = own["name"]
    usual = SpecReference(matcher.kind_of(kind), name)
    if usual.is_cluster_wide:
        return Merged(own)
    other = SpecReference(matcher.cluster, name)
    if lookups.get(usual.kind, namespace, name) is None:
        return Merged(own, messages.assumed_cluster_wide(matcher.field, name, other, usual))
    return Merged({"kind": kind, **own}, messages.assumed_same_kind(matcher.field, name, usual))
