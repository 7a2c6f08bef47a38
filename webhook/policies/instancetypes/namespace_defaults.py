"""The defaults of a namespace: who opts out, what may be named, what an owner merged into them, and which ones fit.

Client-side apply, server-side apply and patches all merge into the matcher that stands in the VM. An owner who applies
``instancetype: {name: u1.medium}``, a cluster-wide one, gets the injected ``kind`` with it, and so another object, or
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Change, Decision, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.facts import Unreadable
from webhook.k8s.json_tree import member
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt import webhooks
from webhook.kubevirt.go_json.structs import Json, share
from webhook.kubevirt.instancetype import find, preferences, revisions
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.rejection import Crash, Rejection
from webhook.kubevirt.resources import REVISIONS
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.types.core import MATCHER
from webhook.kubevirt.vm.size import has_memory
from webhook.policies.common.ownership import Manifests
from webhook.policies.instancetypes import reasons
from webhook.policies.instancetypes.lookups import Lookups, UnsupportedReleaseError
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.text import shorten

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

    What the owner declares in a manifest is the owner's, whatever an annotation says.
    """
    vm_matcher = (vm.spec or {}).get(matcher.field)
    injected_value = vm.meta.annotation(INJECTED_ANNOTATIONS[matcher.field])
    if not injected_value or not isinstance(vm_matcher, dict) or vm_matcher.get("inferFromVolume"):
        return None
    name = vm_matcher.get("name")
    if injected_value != f"{_kind(matcher, vm_matcher)}/{name}":
        return None
    return None if manifests.declare(("spec", matcher.field, "name"), name) else injected_value


def _kind(matcher: Matcher, vm_matcher: Json) -> object:
    """The full kind that a matcher names.

    KubeVirt 1.6 writes it in lower case where the injected default left it out.
    """
    kind = vm_matcher.get("kind") or ""
    try:
        return matcher.kind_of(kind) if isinstance(kind, str) else kind
    except Rejection:
        return kind


async def preset_size(metadata: Any, lookups: Lookups, warnings: list[Reason]) -> str | None:
    """A clause about the preset that gives a VMI its size; None if none does.

    Presets are rare, so an unreadable one becomes a warning, and does not keep the default away. The metadata is that
    of the VMI, or of its VM's template, as plain JSON.
    """
    try:
        sizing = await lookups.sizing_preset(metadata)
    except Unreadable as error:
        warnings.append(reasons.preset_unknown(error.why))
        return None
    return reasons.preset_size(*sizing) if sizing else None


def names_memory(spec: Any) -> bool:
    """Whether a VM's spec, any JSON, says how much memory the guest gets, or names an instancetype that does."""
    return member(spec, INSTANCETYPE_MATCHER.field) is not None or has_memory(member(spec, "template.spec.domain"))


async def lacks_memory(spec: Any, lookups: Lookups) -> bool:
    """Whether nothing gives a VM memory, so that KubeVirt never starts it: neither its spec, any JSON, nor a preset.

    Where presets cannot be read, one may give it memory.
    """
    if names_memory(spec):
        return False
    try:
        return not await lookups.preset_memory(member(spec, "template.metadata"))
    except Unreadable:
        return False


def goes_beside_a_size(matcher: Matcher, settings: InstancetypeSettings) -> bool:
    """Whether a default is given to VMs too whose owners chose a size."""
    return matcher is PREFERENCE_MATCHER and settings.default_preference_scope == "all"


def template_metadata(vm: Unstructured) -> Any:
    """The metadata of a VM's template, of whatever type."""
    template = (vm.spec or {}).get("template")
    return template.get("metadata") if isinstance(template, dict) else None


def allow_unevaluated(error: Exception, consequence: str) -> Decision:
    """The decision on an object that cannot be evaluated, with a warning of what was therefore not done, a clause.

    The error is an `UnsupportedReleaseError`, an `Unreadable` or an `InputError`.
    """
    if isinstance(error, UnsupportedReleaseError):
        return allow(reasons.kubevirt_too_old(consequence, str(error)), warn=True)
    if isinstance(error, Unreadable):
        return allow(common.lookup_failed(consequence, error.why), warn=True)
    return allow(reasons.not_evaluated(str(error)), warn=True)


def is_allowed(matcher: Matcher, reference: find.SpecReference, settings: InstancetypeSettings) -> bool:
    """Whether the namespace lets its VMs and VMIs name this; preferences they always may."""
    if matcher is PREFERENCE_MATCHER or settings.allowed is None:
        return True
    return find.is_allowed(settings.allowed, matcher, reference)


def not_allowed(reference: find.SpecReference, namespace: str, settings: InstancetypeSettings) -> str:
    """The sentence about an instancetype that may not be named."""
    other = find.SpecReference(INSTANCETYPE_MATCHER.cluster, reference.name)
    by_other = not reference.is_cluster_wide and is_allowed(INSTANCETYPE_MATCHER, other, settings)
    return reasons.not_allowed(reference, namespace, _format_allow_list(settings), str(other) if by_other else "")


def _format_allow_list(settings: InstancetypeSettings) -> str:
    return shorten(", ".join(settings.allowed or ()) or "none", _LISTED)


async def reason_forbidden(vm: Json, lookups: Lookups, settings: InstancetypeSettings) -> str | None:
    """The sentence about the instancetype that a decoded VM names, or has pinned, and may not; None if it may.

    Raises:
        Unreadable: an object that the answer depends on cannot be read now.
    """
    vm_matcher = vm["spec"].get(INSTANCETYPE_MATCHER.field)
    if settings.allowed is None or not vm_matcher:
        return None
    if vm_matcher.get("name"):
        # An unknown kind names nothing; a revision beside it counts all the same.
        with suppress(Rejection):
            if why := _reason_forbidden(find.of_matcher(INSTANCETYPE_MATCHER, vm_matcher), lookups, settings):
                return why
    if "revisionName" not in vm_matcher:
        return None
    # KubeVirt does not compare the two. The list must hold: a revision can be replaced by another one of its name.
    stored = await lookups.uncached().read_one(REVISIONS.kind, vm_matcher["revisionName"])
    if stored is None:
        # KubeVirt takes any revision that it can decode, from any user. What is there but not KubeVirt's gets the same
        # answer as what is absent, or may come later.
        return reasons.not_captured(vm_matcher["revisionName"], lookups.namespace, _format_allow_list(settings))
    rules = (await lookups.configuration()).rules
    try:
        payload = revisions.payload(stored, INSTANCETYPE_MATCHER.shape(rules), rules)
    except Rejection:
        # An odd one holds nothing that could run; KubeVirt says so when the VM is started.
        return None
    name = revisions.label(stored) or payload["metadata"].get("name", "")
    return _reason_forbidden(find.SpecReference(payload["kind"], name), lookups, settings)


def _reason_forbidden(reference: find.SpecReference, lookups: Lookups, settings: InstancetypeSettings) -> str | None:
    is_on_list = is_allowed(INSTANCETYPE_MATCHER, reference, settings)
    return None if is_on_list else not_allowed(reference, lookups.namespace, settings)


def default(matcher: Matcher, settings: InstancetypeSettings) -> str:
    """The default for objects that have none; ``""`` for none."""
    return settings.default_preference if matcher is PREFERENCE_MATCHER else settings.default_instancetype


class Default(msgspec.Struct, frozen=True):
    """A default that stands in a VM, or may be written into it.

    Attributes:
        value: the VM's matcher, plain JSON.
        injected_value: the value of its annotation, ``KIND/NAME``.
    """

    matcher: Matcher
    value: Json
    injected_value: str

    @classmethod
    def of(cls, matcher: Matcher, named: find.SpecReference) -> Default:
        """The default that names an object."""
        return cls(matcher, named.matcher(), str(named))

    def changes(self, reason: str) -> tuple[Change, ...]:
        """What writes it into a VM that has none."""
        return Change(("spec", self.matcher.field), None, self.value, reason), self.annotation_change(reason)

    def annotation_change(self, reason: str) -> Change:
        """The change that adds the default's annotation to a VM."""
        path = ("metadata", "annotations", INJECTED_ANNOTATIONS[self.matcher.field])
        return Change(path, None, self.injected_value, reason)


class Fit(msgspec.Struct, frozen=True):
    """The outcome of trying defaults in a VM.

    Attributes:
        chosen: the most of them that KubeVirt would accept.
        why_not: what KubeVirt has against the others, in its words; empty where there are none.
        crash: why KubeVirt's webhook would crash on the VM without any default.
    """

    chosen: Sequence[Default]
    why_not: str = ""
    crash: Crash | None = None


class Findings:
    """What becomes known on the way to a decision, for its reasons and warnings.

    Args:
        lookups: those of the review, which know its namespace.
        settings: those of the namespace.
    """

    def __init__(self, lookups: Lookups, settings: InstancetypeSettings) -> None:
        self.lookups: Final = lookups
        self.settings: Final = settings
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []

    def note(self, reason: Reason, *, warn: bool = False) -> None:
        """Add a reason to the decision's, and where ``warn`` is set to the warnings for the user too."""
        self.reasons.append(reason)
        if warn:
            self.warnings.append(reason)

    def warn_first(self, reason: Reason) -> None:
        """Warn of something before all other warnings: their user may read the first one alone."""
        self.warnings.insert(0, reason)

    def note_unfit(self, defaults: Sequence[Default], fit: Fit, *, lacks_instancetype: bool = False) -> None:
        """Note the defaults that the VM stays without, and warn of them.

        Where the VM ``lacks_instancetype``, the one that it names does not exist: KubeVirt's own sentence would then
        blame a size that the instancetype has, and validation warns of the name.
        """
        for default in defaults:
            if default not in fit.chosen:
                named = f"{default.matcher.field} {default.injected_value}"
                if lacks_instancetype:
                    self.note(reasons.default_needs_instancetype(named))
                else:
                    self.note(reasons.default_conflicts(named, fit.why_not), warn=True)

    def decision(self, *, changes: Sequence[Change] = (), notes: dict[str, str] | None = None) -> Decision:
        """The decision that rests on these findings."""
        made = changes if isinstance(changes, tuple) else tuple(changes)
        return Decision(tuple(self.reasons), made, warnings=tuple(self.warnings), notes=notes or {})


def plain_object(whole: Unstructured, namespace: str, status: dict[str, Any]) -> Json:
    """A VM or VMI as plain JSON for KubeVirt's rules, with the request's namespace and a status not from its sender."""
    plain = whole.plain()
    metadata = {name: value for name, value in plain["metadata"].items() if value is not None}
    return {**plain, "metadata": {**metadata, "namespace": namespace}, "spec": whole.spec or {}, "status": status}


def with_defaults(vm: Json, defaults: Sequence[Default]) -> Json:
    """A VM, decoded or as `share_vm` returns it, with defaults in it."""
    matchers = {
        default.matcher.field: share(MATCHER, default.value, f"spec.{default.matcher.field}") for default in defaults
    }
    return {**vm, "spec": vm["spec"] | matchers}


async def fit_defaults(vm: Json, defaults: Sequence[Default], lookups: Lookups) -> Fit:
    """Both defaults if KubeVirt would accept them, else the instancetype alone, else the preference alone.

    The VM is as `share_vm` returns it; it lacks the defaults, of which the instancetype comes first.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    if defaults or vm["spec"].get(PREFERENCE_MATCHER.field):
        await lookups.prefetch_named(with_defaults(vm, defaults))
    attempts: list[Sequence[Default]] = [defaults, *([default] for default in defaults if len(defaults) > 1)]
    why_not = ""
    for attempt in attempts if defaults else ():
        rejection = await find_rejection(with_defaults(vm, attempt), attempt, lookups)
        if rejection is None:
            return Fit(attempt, why_not)
        why_not = why_not or rejection.what
    rejection = await find_rejection(vm, (), lookups) if vm["spec"].get(PREFERENCE_MATCHER.field) else None
    return Fit((), why_not, rejection if isinstance(rejection, Crash) else None)


async def find_rejection(vm: Json, added: Sequence[Default], lookups: Lookups) -> Rejection | None:
    """What KubeVirt's webhooks would have against a VM, as far as it can be known without inferring; None: nothing.

    The VM is as `share_vm` returns it, with the defaults ``added`` among its matchers.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    spec = vm["spec"]
    matchers = {matcher: spec.get(matcher.field) for matcher in MATCHERS}
    if not any(matchers.values()):
        return None
    inferred = [matcher.field for matcher, value in matchers.items() if value and value.get("inferFromVolume")]
    if inferred and not added:
        return None
    await lookups.prefetch_named(vm)
    configuration = await lookups.configuration()
    # What KubeVirt will find is not known here.
    if INSTANCETYPE_MATCHER.field in inferred:
        # Only a preference that asks for nothing goes with anything.
        if not _is_demanding(vm, lookups, configuration.rules):
            return None
        return Rejection(reasons.inferred_conflict)
    if inferred:
        # Whatever a preference asks for, a VM without any size offers less of it than one with an instancetype.
        vm = {**vm, "spec": {field: value for field, value in spec.items() if field not in inferred}}
    lookups.passed_over = False
    find_spec = webhooks.remember_specs(lookups.get, configuration.rules)
    rejection = webhooks.find_denial(vm, lookups.get, configuration, find_spec)
    if rejection is not None:
        return rejection
    preference = find_spec(PREFERENCE_MATCHER, vm) if added and lookups.passed_over else None
    if preference and "architecture" in preference.get("requirements", {}):
        return Rejection(reasons.architecture_conflict)
    return None


def preference_of(vm: Json, lookups: Lookups, rules: Rules) -> Json:
    """The spec of the preference that a VM names, which has been read; empty where there is none."""
    try:
        return PREFERENCE_MATCHER.find_spec(vm, lookups.get, rules) or {}
    except Rejection:
        return {}


def _is_demanding(vm: Json, lookups: Lookups, rules: Rules) -> bool:
    """Whether a preference fits some instancetypes only: by requirements, by a spread, or by CPU features."""
    preference = preference_of(vm, lookups, rules)
    spreads = preferences.preferred_topology(preference) == preferences.SPREAD
    return spreads or "requirements" in preference or "preferredCPUFeatures" in preference.get("cpu", {})


def deny_crash(crash: Crash) -> Decision:
    """The denial of a VM on which KubeVirt's webhook would crash: the user would read "EOF"."""
    return deny(Reason(reasons.DENIED, crash.what), 422, "spec.preference")
