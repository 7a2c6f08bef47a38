"""What can't work is refused early, in KubeVirt's own words.

KubeVirt's webhook says most of this too, but not all: a VM that names what isn't there is admitted and never starts,
and on two inputs KubeVirt's webhook crashes, which users read as "EOF". Here every VM gets a sentence, and namespaces
may say which instancetypes their VMs may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.admission.decision import Decision, Denial, FieldCause, Reason, skip
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.kubevirt import admission
from webhook.kubevirt.machine import read_vm
from webhook.kubevirt.matcher import INSTANCETYPE_MATCHER, MATCHERS, Matcher
from webhook.kubevirt.refusal import Cause, NotFound, Refusal
from webhook.kubevirt.shape import Json, decode
from webhook.kubevirt.types.machines import MATCHER
from webhook.names import Code
from webhook.objects import Whole
from webhook.policies.instancetypes import owner
from webhook.policies.instancetypes.lookups import Lookups
from webhook.policies.unreadable import Unreadable
from webhook.settings.snapshot import InstancetypeSettings


def virtualmachines(vm: Whole, request: Request[Whole], facts: Facts, settings: InstancetypeSettings) -> Decision:
    """Refuse a VM whose instancetype and preference can't work, are not there, or are not allowed.

    At UPDATE only where a matcher or the template has changed: what was admitted once must stay editable.
    """
    if not settings.virtual_machines:
        return skip(Code.SWITCHED_OFF, "instancetypes.virtualMachines is off")
    if request.operation not in ("CREATE", "UPDATE"):
        return skip(Code.OTHER_OPERATION, f"{request.operation} chooses no instancetype")
    if vm.meta.deletion_timestamp:
        return skip(Code.BEING_DELETED, "the VM is being deleted")
    spec = vm.spec or {}
    if not any(spec.get(matcher.field) for matcher in MATCHERS):
        return skip(Code.NO_MATCHER, "the VM has neither instancetype nor preference")
    old = (request.old_object.spec if request.old_object else None) or {}
    changed = [matcher for matcher in MATCHERS if spec.get(matcher.field) != old.get(matcher.field)]
    if request.operation == "UPDATE" and not changed and spec.get("template") == old.get("template"):
        return skip(Code.UNCHANGED, "instancetype, preference and template stay as they are")
    lookups = Lookups(facts)
    try:
        return _judged(vm, request, changed, lookups, settings)
    except Unreadable as error:
        return skip(Code.FACTS_UNREADABLE, error.why, f"kubevirt-webhook did not check the VM: {error.why}")
    except Refusal as crash:
        return _refused(Code.REFUSED, 422, [Cause("FieldValueInvalid", crash.what, "spec.preference")])
    except InputError as error:
        text = f"the VM's instancetype can't be judged: {error}"
        return skip(Code.MALFORMED_OBJECT, text, f"kubevirt-webhook: {text}")


def _judged(
    vm: Whole, request: Request[Whole], changed: list[Matcher], lookups: Lookups, settings: InstancetypeSettings
) -> Decision:
    namespace, plain = request.namespace or "", vm.plain()
    # What has just been created has no revisions, whatever status its sender claims.
    status = vm.status if request.operation == "UPDATE" else None
    candidate = {**plain, "metadata": {**plain["metadata"], "namespace": namespace}, "status": status or {}}
    given = (vm.spec or {}).get(INSTANCETYPE_MATCHER.field)
    if given is not None and INSTANCETYPE_MATCHER in changed:
        # Before the rest is read: a VM that is too large to be judged doesn't get past the list.
        matcher = decode(MATCHER, given, "spec.instancetype")
        text = owner.forbidden({"spec": {INSTANCETYPE_MATCHER.field: matcher}}, namespace, lookups, settings)
        if text:
            cause = Cause("FieldValueNotSupported", text, "spec.instancetype.name")
            return _refused(Code.NOT_ALLOWED, 403, [cause])
    decoded = read_vm(candidate)
    missing = [cause for matcher in changed for cause in _missing(matcher, decoded, lookups)]
    if missing and settings.missing == "deny":
        return _refused(Code.MISSING, 422, missing)
    answer = admission.judge(decoded, lookups.get, lookups.configuration())
    if not answer.allowed:
        return _refused(Code.REFUSED, answer.code, answer.causes, answer.message, _ways_out(vm))
    if missing:
        texts = [f"{cause.what}: KubeVirt admits the VM but can't start it{_until(cause)}" for cause in missing]
        return skip(Code.MISSING, "; ".join(texts), *(f"kubevirt-webhook: {text}" for text in texts))
    return Decision((Reason(Code.VALID, "instancetype and preference fit the VM"),))


def _missing(matcher: Matcher, vm: Json, lookups: Lookups) -> Iterator[Cause]:
    given, captured = vm["spec"].get(matcher.field, {}), vm["status"].get(matcher.reference, {})
    if given.get("inferFromVolume"):
        return
    try:
        matcher.find(vm, lookups.get)
        # KubeVirt's webhook finds the revision of that name; virt-controller sees another kind, and captures it anew.
        if "revisionName" not in given and given.get("kind", captured.get("kind")) != captured.get("kind"):
            matcher.live(vm, lookups.get)
    except Refusal as refusal:
        reason = "FieldValueNotFound" if isinstance(refusal, NotFound) else "FieldValueInvalid"
        yield Cause(reason, refusal.what, f"spec.{matcher.field}")


def _until(cause: Cause) -> str:
    return " until it is there" if cause.reason == "FieldValueNotFound" else ""


def _ways_out(vm: Whole) -> tuple[str, ...]:
    """What may be news to whoever now says a size: an instancetype stands in the way that nobody had named."""
    mark = owner.default_of(INSTANCETYPE_MATCHER, vm)
    if not mark:
        return ()
    text = f"the VM got {mark} as a default when it was created; to go without it, set spec.instancetype to null"
    return (f"kubevirt-webhook: {text}",)


def _refused(
    code: str, status: int, causes: Sequence[Cause], message: str = "", warnings: tuple[str, ...] = ()
) -> Decision:
    text = message or ", ".join(cause.what for cause in causes)
    denial = Denial(status, text, tuple(FieldCause(cause.reason, cause.what, cause.field) for cause in causes))
    return Decision((Reason(code, text),), denial=denial, warnings=warnings)
