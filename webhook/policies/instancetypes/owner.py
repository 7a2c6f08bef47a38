"""What owners and admins have the say in: opting out, and which instancetypes may be named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.k8s.views import Unstructured
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import find, revisions
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, Matcher, SpecReference
from webhook.kubevirt.rejection import Rejection
from webhook.policies.common.ownership import Manifests
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.instancetypes import messages
from webhook.policies.instancetypes.lookups import Lookups
from webhook.settings.snapshot import InstancetypeSettings

# The annotations that record an applied default, by the matcher's field.
INJECTED_ANNOTATIONS: Final = {
    "instancetype": names.INJECTED_INSTANCETYPE_ANNOTATION,
    "preference": names.INJECTED_PREFERENCE_ANNOTATION,
}

_OPT_OUT: Final = names.policy_label(names.INSTANCETYPES)
# Characters of an allow-list that a denial shows; a namespace's annotation may hold 256 KiB.
_LISTED: Final = 500

# Of namespaces, by a matcher's field.
DEFAULT_ANNOTATIONS: Final = {
    "instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "preference": names.DEFAULT_PREFERENCE_ANNOTATION,
}


def has_opted_out(whole: Unstructured) -> bool:
    """Whether an object's owner declines defaults, by a label or an annotation named as the namespace's label."""
    return names.OFF in (whole.meta.label(_OPT_OUT), whole.meta.annotation(_OPT_OUT))


def default_of(matcher: Matcher, vm: Unstructured, manifests: Manifests) -> str | None:
    """The annotation of a default that was injected into a VM; None where its owner has chosen otherwise since.

    Args:
        matcher: the matcher, of the instancetype or of the preference.
        vm: the VM.
        manifests: the manifests of the VM. What its owner declares is the owner's, whatever an annotation says.
    """
    given, injected_value = (vm.spec or {}).get(matcher.field), vm.meta.annotation(INJECTED_ANNOTATIONS[matcher.field])
    if not injected_value or not isinstance(given, dict) or given.get("inferFromVolume"):
        return None
    name = given.get("name")
    is_injected = injected_value == f"{_kind(matcher, given)}/{name}" and not manifests.declare(
        ("spec", matcher.field, "name"), name
    )
    return injected_value if is_injected else None


def _kind(matcher: Matcher, given: Json) -> object:
    """The full kind that a matcher names.

    KubeVirt 1.6 writes it in lower case where the injected default left it out.
    """
    kind = given.get("kind") or ""
    try:
        return matcher.kind_of(kind) if isinstance(kind, str) else kind
    except Rejection:
        return kind


def preset_size(metadata: Any, namespace: str, lookups: Lookups, warnings: list[Reason]) -> str | None:
    """A clause about the preset that gives a VMI its size; None if none does.

    Presets are rare, so an unreadable one becomes a warning, and does not keep the default away.

    Args:
        metadata: the metadata of the VMI, or of its VM's template; plain JSON.
        namespace: the VMI's namespace.
        lookups: the look-ups of the review.
        warnings: gets a warning for what could not be read.

    Raises:
        NotRead: the presets have not been read yet; for the Reviewer.
    """
    try:
        sizing = lookups.sizing_preset(namespace, metadata)
    except Unreadable as error:
        warnings.append(messages.preset_unknown(error.why))
        return None
    return messages.preset_size(*sizing) if sizing else None


def goes_beside_a_size(matcher: Matcher, settings: InstancetypeSettings) -> bool:
    """Whether a default is given to VMs too whose owners chose a size."""
    return matcher is PREFERENCE_MATCHER and settings.preference_scope == "all"


def template_metadata(vm: Unstructured) -> Any:
    """The metadata of a VM's template, of whatever type."""
    template = (vm.spec or {}).get("template")
    return template.get("metadata") if isinstance(template, dict) else None


def is_allowed(matcher: Matcher, wanted: SpecReference, settings: InstancetypeSettings) -> bool:
    """Whether the namespace lets its VMs and VMIs name this; preferences they always may."""
    if matcher is PREFERENCE_MATCHER or settings.allowed is None:
        return True
    return find.is_allowed(settings.allowed, matcher, wanted)


def not_allowed(wanted: SpecReference, namespace: str, settings: InstancetypeSettings) -> str:
    """The sentence about an instancetype that may not be named."""
    return messages.not_allowed(wanted, namespace, _format_allow_list(settings))


def _not_captured(name: str, namespace: str, settings: InstancetypeSettings) -> str:
    """The sentence about a revision that the VM names and that holds no instancetype, or an unreadable one."""
    return messages.not_captured(name, namespace, _format_allow_list(settings))


def _format_allow_list(settings: InstancetypeSettings) -> str:
    listed = ", ".join(settings.allowed or ()) or "none"
    return listed if len(listed) <= _LISTED else f"{listed[: _LISTED - 1]}…"


def reason_forbidden(vm: Json, namespace: str, lookups: Lookups, settings: InstancetypeSettings) -> str | None:
    """The sentence about the instancetype that a VM names, or has pinned, and may not; None if it may.

    Args:
        vm: decoded.
        namespace: the VM's namespace.
        lookups: the look-ups of the review.
        settings: the section of the policy for the namespace, with the allowed instancetypes.

    Raises:
        Unreadable: an object that the answer depends on cannot be read now.
        NotRead: it has not been read yet; for the Reviewer.
    """
    if settings.allowed is None:
        return None
    for wanted in _instancetypes(vm, namespace, lookups):
        if wanted is None:
            # What is there but not KubeVirt's gets the same answer as what is absent, or may come later.
            return _not_captured(vm["spec"][INSTANCETYPE_MATCHER.field]["revisionName"], namespace, settings)
        if not is_allowed(INSTANCETYPE_MATCHER, wanted, settings):
            return not_allowed(wanted, namespace, settings)
    return None


def _instancetypes(vm: Json, namespace: str, lookups: Lookups) -> Iterator[SpecReference | None]:
    """What the VM names, and what the revision that it pins was captured from: KubeVirt does not compare the two.

    None stands for a revision that says no such thing: KubeVirt takes any that it can decode, from any user.
    """
    given = vm["spec"].get(INSTANCETYPE_MATCHER.field)
    if not given:
        return
    if given.get("name"):
        # An unknown kind names nothing; a revision beside it counts all the same.
        with suppress(Rejection):
            yield find.of_matcher(INSTANCETYPE_MATCHER, given)
    if "revisionName" in given:
        # The list must hold: a revision can be replaced by another one of its name.
        stored = lookups.get_fresh("ControllerRevision", namespace, given["revisionName"])
        if stored is None:
            yield None
            return
        # An odd one holds nothing that could run; KubeVirt says so when the VM is started.
        with suppress(Rejection):
            payload = revisions.payload(stored, INSTANCETYPE_MATCHER.shape(lookups.rules), lookups.rules)
            yield SpecReference(payload["kind"], revisions.label(stored) or payload["metadata"].get("name", ""))


def default(matcher: Matcher, settings: InstancetypeSettings) -> str:
    """The default for objects that have none; ``""`` for none."""
    return settings.default_preference if matcher is PREFERENCE_MATCHER else settings.default_instancetype
