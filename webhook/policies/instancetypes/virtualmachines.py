"""Defaults for VMs: matchers at CREATE, and at UPDATE only what an overwrite took.

What we write carries a mark, an annotation ``KIND/NAME``. At UPDATE nothing new is ever added. But a pool and a
`kubectl replace` write the whole spec anew, without what we had added: then both are put back, whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Change, Decision, Denial, FieldCause, Reason, skip
from webhook.admission.difference import changes
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.kubevirt import admission, expand, preference, reference, topology
from webhook.kubevirt.machine import read_vm
from webhook.kubevirt.matcher import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.reference import Reference
from webhook.kubevirt.refusal import Crash, Refusal
from webhook.kubevirt.shape import Json, decode, encode
from webhook.kubevirt.sized import sized
from webhook.kubevirt.topology import Topology
from webhook.kubevirt.types.machines import MATCHER, VM
from webhook.names import Code
from webhook.objects import Whole
from webhook.policies.instancetypes import owner
from webhook.policies.instancetypes.lookups import Lookups
from webhook.policies.instancetypes.owner import MARKS
from webhook.policies.unreadable import Unreadable
from webhook.settings.snapshot import InstancetypeSettings

_ANNOTATIONS: Final = {
    "instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "preference": names.DEFAULT_PREFERENCE_ANNOTATION,
}


class _Default(msgspec.Struct, frozen=True):
    """A default that may be written into a VM."""

    matcher: Matcher
    value: Json
    mark: str

    def changes(self, vm: Whole, reason: str) -> tuple[Change, ...]:
        return (
            Change(("spec", self.matcher.field), None, self.value, reason),
            Change(("metadata", "annotations", MARKS[self.matcher.field]), None, self.mark, reason),
        )


class _Findings:
    """What becomes known on the way to a decision, for its reasons and warnings."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self.warnings: list[str] = []

    def note(self, code: str, text: str, *, warn: bool = False) -> None:
        self.reasons.append(Reason(code, text))
        if warn:
            self.warnings.append(f"kubevirt-webhook: {text}")

    def decision(self, *, changes: Sequence[Change] = (), notes: dict[str, str] | None = None) -> Decision:
        return Decision(tuple(self.reasons), tuple(changes), warnings=tuple(self.warnings), notes=notes or {})


def virtualmachines(vm: Whole, request: Request[Whole], facts: Facts, settings: InstancetypeSettings) -> Decision:
    """Give a new VM the namespace's defaults; at UPDATE put back what an overwrite took.

    A VM on which KubeVirt's webhook would crash is refused here, before it gets there: the user would read "EOF".
    """
    if not settings.virtual_machines:
        return skip(Code.SWITCHED_OFF, "instancetypes.virtualMachines is off")
    if request.operation not in ("CREATE", "UPDATE"):
        return skip(Code.OTHER_OPERATION, f"{request.operation} chooses no instancetype")
    if vm.meta.deletion_timestamp:
        return skip(Code.BEING_DELETED, "the VM is being deleted")
    lookups = Lookups(facts)
    try:
        if request.operation == "UPDATE":
            return _updated(vm, request, lookups, settings)
        return _created(vm, request.namespace or "", lookups, settings)
    except Unreadable as error:
        return skip(Code.FACTS_UNREADABLE, error.why, f"kubevirt-webhook left the VM's instancetype alone: {error.why}")
    except InputError as error:
        text = f"the VM's instancetype can't be judged: {error}"
        return skip(Code.MALFORMED_OBJECT, text, f"kubevirt-webhook: {text}")


def _created(vm: Whole, namespace: str, lookups: Lookups, settings: InstancetypeSettings) -> Decision:
    findings = _Findings()
    # The status of an object to be created is what its sender claims; the API server drops it.
    candidate = _plain(vm, namespace, {})
    read = read_vm(candidate)
    spec = read["spec"]
    wanted: dict[Matcher, Reference] = {}
    if owner.opted_out(vm):
        findings.note(Code.OWNER_OPTED_OUT, owner.OPTED_OUT)
    else:
        for matcher in MATCHERS:
            named = _wanted(matcher, vm, spec, namespace, settings, findings)
            if named:
                wanted[matcher] = named
    lookups.expect([*wanted.values(), *_named(spec)], namespace)
    defaults = [
        _Default(matcher, named.matcher(), str(named))
        for matcher, named in wanted.items()
        if _exists(matcher, named, namespace, lookups, findings)
    ]
    chosen, crash = _fitting(read, defaults, lookups, findings)
    if crash:
        return _refused(crash)
    if settings.expand and not owner.opted_out(vm):
        expanded = _expanded(vm, _with(candidate, _read(chosen)), lookups, settings, findings)
        if expanded:
            return expanded
    if chosen:
        given = " and ".join(f"{default.matcher.field} {default.mark}" for default in chosen)
        findings.reasons.insert(0, Reason(Code.DEFAULTS_INJECTED, f"the VM got the default {given}"))
    elif not findings.reasons:
        findings.note(Code.NO_DEFAULTS, "neither the namespace nor the settings have a default")
    return _injected(vm, chosen, Code.DEFAULTS_INJECTED, findings)


def _updated(vm: Whole, request: Request[Whole], lookups: Lookups, settings: InstancetypeSettings) -> Decision:
    """Put back our own defaults with their marks, where an overwrite has swept both away.

    An owner who takes a matcher out and leaves the mark means it, and so does one who now says a size.
    """
    findings = _Findings()
    old = request.old_object
    if old is None or old.spec == vm.spec:
        return skip(Code.UNCHANGED, "the VM's spec stays as it is")
    # The stored status: the API server puts it back only after mutating webhooks.
    candidate = _plain(vm, request.namespace or "", old.status or {})
    read, before = read_vm(candidate), old.spec or {}
    spec = read["spec"]
    withdrawn = [change for matcher in MATCHERS for change in _withdrawn(matcher, vm, old)]
    if withdrawn:
        text = "the owner wants to infer what our default stood for, which it gives way to"
        findings.note(Code.DEFAULT_WITHDRAWN, text)
        return findings.decision(changes=withdrawn)
    carried: list[_Default] = []
    for matcher in () if owner.opted_out(vm) else MATCHERS:
        mark = owner.default_of(matcher, old)
        if not mark:
            continue
        # A size that stood there before is no news: a preference beside it was given by a wider scope.
        was_sized = _sized(read_vm(_plain(old, "", {}))["spec"])
        why_not = _kept(matcher, vm, spec, anyway=settings.preference_scope == "all" or was_sized is not None)
        if why_not:
            findings.note(why_not.code, why_not.text)
        else:
            carried.append(_Default(matcher, before[matcher.field], mark))
    chosen, crash = _fitting(read, carried, lookups, findings)
    if crash:
        return _refused(crash)
    if chosen:
        given = " and ".join(f"{default.matcher.field} {default.mark}" for default in chosen)
        text = f"an overwrite of the whole VM had removed {given}, which we had written"
        findings.reasons.insert(0, Reason(Code.DEFAULTS_CARRIED_OVER, text))
    elif not findings.reasons:
        findings.note(Code.NOTHING_TO_CARRY, "nothing is added to a VM at UPDATE: a running one would need a restart")
    return _injected(vm, chosen, Code.DEFAULTS_CARRIED_OVER, findings)


def _withdrawn(matcher: Matcher, vm: Whole, old: Whole) -> Iterator[Change]:
    """What takes our default back where an apply has merged an owner's ``inferFromVolume`` into it.

    Appliers merge into the matcher that is there, so that both stand in it, which KubeVirt refuses, and an owner's tool
    has no way to remove what it has never declared.
    """
    given, mark = (vm.spec or {}).get(matcher.field), vm.meta.annotation(MARKS[matcher.field])
    if not isinstance(given, dict) or not given.get("inferFromVolume") or not mark:
        return
    if owner.default_of(matcher, old) != mark or f"{given.get('kind')}/{given.get('name')}" != mark:
        return
    for field in ("kind", "name"):
        yield Change(("spec", matcher.field, field), given[field], None, Code.DEFAULT_WITHDRAWN)
    yield Change(("metadata", "annotations", MARKS[matcher.field]), mark, None, Code.DEFAULT_WITHDRAWN)


def _injected(vm: Whole, chosen: Sequence[_Default], code: str, findings: _Findings) -> Decision:
    made = [change for default in chosen for change in default.changes(vm, code)]
    return findings.decision(changes=made, notes={default.matcher.field: default.mark for default in chosen})


def _named(spec: Json) -> Iterator[Reference]:
    """What a VM with a preference names, and what will so be looked up: without one KubeVirt can't crash."""
    for matcher in MATCHERS if PREFERENCE_MATCHER.field in spec else ():
        given = spec.get(matcher.field)
        if given and given.get("name") and "revisionName" not in given:
            with suppress(Refusal):
                yield reference.of_matcher(matcher, given)


def _sized(spec: Json) -> str | None:
    """The field by which a VM says its size; None if it says none."""
    return sized(spec["template"].get("spec", {}).get("domain"))


def _kept(matcher: Matcher, vm: Whole, spec: Json, *, anyway: bool) -> Reason | None:
    """Why a VM keeps what it says of one matcher; None if it says nothing.

    Args:
        spec: the VM's, decoded.
        anyway: a preference may stand beside a size.
    """
    if matcher.field in spec:
        return Reason(Code.OWNER_CHOSE_INSTANCETYPE, f"the VM has its own {matcher.field}")
    if vm.meta.annotation(MARKS[matcher.field]):
        text = f"the owner took the {matcher.field} out and left our mark: that is meant"
        return Reason(Code.OWNER_REMOVED_INSTANCETYPE, text)
    field = _sized(spec)
    if field and (matcher is INSTANCETYPE_MATCHER or not anyway):
        return Reason(Code.SIZED, f"the VM says spec.template.spec.domain.{field}, so no default {matcher.field}")
    return None


def _wanted(
    matcher: Matcher, vm: Whole, spec: Json, namespace: str, settings: InstancetypeSettings, findings: _Findings
) -> Reference | None:
    """The default that a VM should get, if there is one that may be used; a finding says why not."""
    text = owner.default(matcher, settings)
    if not text:
        return None
    why_not = _kept(matcher, vm, spec, anyway=settings.preference_scope == "all")
    if why_not:
        findings.note(why_not.code, why_not.text)
        return None
    try:
        wanted = reference.parse(matcher, text, _ANNOTATIONS[matcher.field])
    except InputError as error:
        findings.note(Code.DEFAULT_UNUSABLE, f"the default {matcher.field} can't be used: {error}", warn=True)
        return None
    if not owner.is_allowed(matcher, wanted, settings):
        why = owner.not_allowed(wanted, namespace, settings)
        findings.note(Code.DEFAULT_UNUSABLE, f"the default {matcher.field} can't be used: {why}", warn=True)
        return None
    return wanted


def _exists(matcher: Matcher, wanted: Reference, namespace: str, lookups: Lookups, findings: _Findings) -> bool:
    if lookups.get(wanted.kind, namespace, wanted.name) is not None:
        return True
    text = f"the default {matcher.field} {wanted} does not exist, so the VM is left without"
    findings.note(Code.DEFAULT_UNUSABLE, text, warn=True)
    return False


def _fitting(
    vm: Json, defaults: Sequence[_Default], lookups: Lookups, findings: _Findings
) -> tuple[Sequence[_Default], Crash | None]:
    """The most defaults that KubeVirt would accept in a VM, and why it would crash on the VM as it is.

    Both, else the instancetype alone, else the preference alone.

    Args:
        vm: decoded.
    """
    attempts: list[Sequence[_Default]] = [defaults, *([default] for default in defaults if len(defaults) > 1)]
    why = ""
    for attempt in attempts if defaults else ():
        refusal = _objection(_with(vm, _read(attempt)), attempt, lookups)
        if refusal is None:
            left = [default for default in defaults if default not in attempt]
            _note_left(left, why, findings)
            return attempt, None
        why = why or refusal.what
    _note_left(defaults, why, findings)
    refusal = _objection(vm, (), lookups) if vm["spec"].get(PREFERENCE_MATCHER.field) else None
    return (), refusal if isinstance(refusal, Crash) else None


def _note_left(left: Sequence[_Default], why: str, findings: _Findings) -> None:
    for default in left:
        text = f"the default {default.matcher.field} {default.mark} does not fit this VM, which stays without: {why}"
        findings.note(Code.DEFAULT_CONFLICTS, text, warn=True)


def _with(vm: Json, matchers: Json) -> Json:
    return {**vm, "spec": vm["spec"] | matchers}


def _read(defaults: Sequence[_Default]) -> Json:
    """The matchers of defaults by field, decoded."""
    return {
        default.matcher.field: decode(MATCHER, default.value, f"spec.{default.matcher.field}") for default in defaults
    }


def _objection(vm: Json, added: Sequence[_Default], lookups: Lookups) -> Refusal | None:
    """What KubeVirt's webhooks would have against a VM, as far as it can be known without inferring.

    Args:
        vm: decoded.

    Raises:
        Unreadable, InputError: it can't be judged.
    """
    spec = vm["spec"]
    given = {matcher: spec.get(matcher.field) for matcher in MATCHERS}
    if not any(given.values()):
        return None
    inferred = [matcher.field for matcher, value in given.items() if value and value.get("inferFromVolume")]
    if inferred and not added:
        return None
    # What KubeVirt will find is not known here.
    if INSTANCETYPE_MATCHER.field in inferred:
        # Only a preference that asks for nothing goes with anything.
        if not _demanding(vm, lookups):
            return None
        return Refusal("the VM's instancetype is still to be inferred, so it can't be checked against that")
    if inferred:
        # Whatever a preference asks for, a VM without any size offers less of it than one with an instancetype.
        vm = {**vm, "spec": {field: value for field, value in spec.items() if field not in inferred}}
    lookups.passed_over = False
    configuration = lookups.configuration()
    refusal = admission.objection(vm, lookups.get, configuration)
    if refusal is not None:
        return refusal
    requires = _preference(vm, lookups).get("requirements", {}) if added and lookups.passed_over else {}
    if "architecture" in requires:
        return Refusal("the preference requires an architecture, and the VM takes its own from a volume's source")
    return None


def _preference(vm: Json, lookups: Lookups) -> Json:
    """The spec of the preference that a VM names; empty where there is none."""
    try:
        return PREFERENCE_MATCHER.find_spec(vm, lookups.get) or {}
    except Refusal:
        return {}


def _demanding(vm: Json, lookups: Lookups) -> bool:
    """Whether a preference fits some instancetypes only: by requirements, by a spread, or by CPU features."""
    found = _preference(vm, lookups)
    spreads = topology.preferred(found) is Topology.SPREAD
    return spreads or "requirements" in found or "preferredCPUFeatures" in found.get("cpu", {})


def _expanded(
    vm: Whole, candidate: Json, lookups: Lookups, settings: InstancetypeSettings, findings: _Findings
) -> Decision | None:
    """The VM with what its matchers say written out; None where it stays as it is.

    What will be refused stays: once written out, nobody could tell any more.
    """
    given = [candidate["spec"].get(matcher.field) for matcher in MATCHERS]
    if not any(given):
        return None
    if any(value.get("inferFromVolume") for value in given if value):
        findings.note(Code.NOT_INFERRED, "the VM is not expanded: it is to be inferred from a volume what", warn=True)
        return None
    namespace, read = candidate["metadata"]["namespace"], read_vm(candidate)
    refusal = _objection(read, (), lookups)
    why_not = refusal.what if refusal else owner.forbidden(read, namespace, lookups, settings)
    if why_not:
        findings.note(Code.REFUSED, f"the VM is not expanded: {why_not}")
        return None
    if lookups.passed_over:
        text = "the VM is not expanded: it takes its architecture from a volume's source"
        findings.note(Code.NOT_INFERRED, text, warn=True)
        return None
    # KubeVirt does this when it admits a VM, and so before it ever expands one.
    preference.storage_class(_preference(read, lookups), read["spec"].get("dataVolumeTemplates", []))
    try:
        after = expand.expand(encode(VM, read), lookups.get, lookups.configuration())
    except Refusal as refusal:
        findings.note(Code.REFUSED, f"the VM is not expanded: {refusal.what}", warn=True)
        return None
    before = encode(VM, candidate)
    named = zip(MATCHERS, given, strict=True)
    made = {matcher.field: _source(matcher, value) for matcher, value in named if value}
    said = " and ".join(f"{field} {found}" for field, found in made.items())
    findings.reasons.insert(0, Reason(Code.EXPANDED, f"{said} is written out in the VM"))
    written = changes(("spec",), vm.spec, before["spec"], after["spec"], Code.EXPANDED)
    return findings.decision(changes=[*written], notes={field: str(found) for field, found in made.items()})


def _source(matcher: Matcher, given: Json) -> Reference:
    """Where KubeVirt takes from what a VM's matcher says: beside a revision, kind and name don't count."""
    if given.get("revisionName"):
        return Reference("ControllerRevision", given["revisionName"])
    return reference.of_matcher(matcher, given)


def _plain(vm: Whole, namespace: str, status: dict[str, Any]) -> Json:
    plain = vm.plain()
    return {**plain, "metadata": {**plain["metadata"], "namespace": namespace}, "spec": vm.spec or {}, "status": status}


def _refused(crash: Crash) -> Decision:
    denial = Denial(422, crash.what, (FieldCause("FieldValueInvalid", crash.what, "spec.preference"),))
    return Decision((Reason(Code.REFUSED, crash.what),), denial=denial)
