"""What cannot work is denied early, in KubeVirt's own words.

KubeVirt's webhook denies most of this too, but not all: a VM that names what does not exist is admitted and never
starts, and on two inputs KubeVirt's webhook crashes, which users read as "EOF". Here every VM gets a sentence, and
namespaces may say which instancetypes their VMs may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.admission.decision import Decision, Denial, FieldCause, Reason, skip
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.k8s.views import Unstructured
from webhook.kubevirt import webhooks
from webhook.kubevirt.go_json.structs import Json, decode
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.rejection import Cause, Crash, NotFound, Rejection
from webhook.kubevirt.rules import read_vm
from webhook.kubevirt.types.core import MATCHER
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.names import Code
from webhook.policies.common import messages as common
from webhook.policies.common.ownership import Manifests
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.instancetypes import messages, owner
from webhook.policies.instancetypes.lookups import Lookups, UnsupportedReleaseError
from webhook.settings.snapshot import InstancetypeSettings


def virtualmachines(
    vm: UnstructuredVm, request: Request[UnstructuredVm], facts: Facts, settings: InstancetypeSettings
) -> Decision:
    """Deny a VM whose instancetype and preference cannot work, do not exist, or are not allowed.

    At UPDATE only where a matcher or the template has changed: what was admitted once must stay editable.
    """
    if not settings.virtual_machines:
        return skip(common.disabled("instancetypes.virtualMachines"))
    if request.operation not in ("CREATE", "UPDATE"):
        return skip(common.other_operation(request.operation))
    if vm.meta.deletion_timestamp:
        return skip(common.being_deleted("the VM"))
    spec = vm.spec or {}
    if all(spec.get(matcher.field) is None for matcher in MATCHERS):
        return skip(messages.no_matcher())
    old = (request.old_object.spec if request.old_object else None) or {}
    changed = [matcher for matcher in MATCHERS if spec.get(matcher.field) != old.get(matcher.field)]
    if request.operation == "UPDATE" and not changed and spec.get("template") == old.get("template"):
        return skip(messages.unchanged())
    lookups = Lookups(facts)
    try:
        return _evaluate(vm, request, changed, lookups, settings)
    except UnsupportedReleaseError as error:
        return skip(messages.kubevirt_too_old("the VM's instancetype was not validated", str(error)), warn=True)
    except Unreadable as error:
        if settings.failure_policy == "Fail":
            reason = messages.lookup_failed(error.why)
            return Decision((reason,), denial=Denial(503, reason.text))
        return skip(common.lookup_failed("the VM's instancetype was not validated", error.why), warn=True)
    except Rejection as crash:
        return _deny(Code.DENIED, 422, [Cause("FieldValueInvalid", crash.what, "spec.preference")])
    except InputError as error:
        return skip(messages.not_evaluated(str(error)), warn=True)


def _evaluate(
    vm: Unstructured,
    request: Request[UnstructuredVm],
    changed: list[Matcher],
    lookups: Lookups,
    settings: InstancetypeSettings,
) -> Decision:
    namespace, plain = request.namespace or "", vm.plain()
    # What has just been created has no revisions, whatever status its sender claims.
    status = vm.status if request.operation == "UPDATE" else None
    candidate = {**plain, "metadata": {**plain["metadata"], "namespace": namespace}, "status": status or {}}
    given = (vm.spec or {}).get(INSTANCETYPE_MATCHER.field)
    if given is not None and INSTANCETYPE_MATCHER in changed:
        # Before the rest is read: a VM that is too large to be evaluated doesn't get past the list.
        try:
            matcher = decode(MATCHER, given, "spec.instancetype")
        except InputError as error:
            # Nor does one that can't be read.
            return _deny(Code.INVALID_OBJECT, 422, [Cause("FieldValueInvalid", str(error), "spec.instancetype")])
        text = owner.reason_forbidden({"spec": {INSTANCETYPE_MATCHER.field: matcher}}, namespace, lookups, settings)
        if text:
            cause = Cause("FieldValueNotSupported", text, "spec.instancetype.name")
            return _deny(Code.NOT_ALLOWED, 403, [cause])
    decoded = read_vm(candidate, lookups.rules)
    missing = [cause for matcher in changed for cause in _missing(matcher, decoded, lookups)]
    if missing and settings.missing == "deny":
        return _deny(Code.MISSING, 422, missing)
    answer = webhooks.evaluate_vm(decoded, lookups.get, lookups.configuration())
    if not answer.is_allowed:
        ways_out = _ways_out(vm, request.operation, candidate, lookups)
        return _deny(Code.DENIED, answer.code, answer.causes, answer.message, ways_out)
    if missing:
        reasons = messages.missing([(cause.what, cause.reason == "FieldValueNotFound") for cause in missing])
        return Decision(reasons, warnings=reasons)
    return Decision((messages.valid(),))


def _missing(matcher: Matcher, vm: Json, lookups: Lookups) -> Iterator[Cause]:
    given, captured = vm["spec"].get(matcher.field), vm["status"].get(matcher.reference, {})
    if given is None or given.get("inferFromVolume"):
        return
    if not given.keys() & {"name", "revisionName"}:
        # Only inference leaves such a matcher. KubeVirt never looks at the VM again, and denies every change of it.
        label = f"instancetype.kubevirt.io/default-{matcher.field}"
        yield Cause("FieldValueInvalid", messages.names_nothing(matcher.field, label), f"spec.{matcher.field}")
        return
    try:
        matcher.find(vm, lookups.get, lookups.rules)
        # KubeVirt's webhook finds the revision of that name; virt-controller sees another kind, and captures it anew.
        if "revisionName" not in given and given.get("kind", captured.get("kind")) != captured.get("kind"):
            matcher.live(vm, lookups.get, lookups.rules)
    except Rejection as rejection:
        reason = "FieldValueNotFound" if isinstance(rejection, NotFound) else "FieldValueInvalid"
        yield Cause(reason, rejection.what, f"spec.{matcher.field}")


def _ways_out(vm: Unstructured, operation: str, candidate: Json, lookups: Lookups) -> tuple[Reason, ...]:
    """What may be new to the user of a denied request: an injected instancetype or preference is in the way."""
    manifests = Manifests(vm)
    injected_values = {
        matcher: injected_value for matcher in MATCHERS if (injected_value := owner.default_of(matcher, vm, manifests))
    }
    if operation == "CREATE":
        injected_value = injected_values.get(INSTANCETYPE_MATCHER)
        return (Reason(Code.DENIED, messages.way_out_at_create(injected_value)),) if injected_value else ()
    for without in ((INSTANCETYPE_MATCHER,), (PREFERENCE_MATCHER,), MATCHERS):
        if all(matcher in injected_values for matcher in without) and _fits(without, candidate, lookups):
            given = {matcher.field: injected_values[matcher] for matcher in without}
            return (Reason(Code.DENIED, messages.way_out_at_update(given)),)
    return ()


def _fits(without: Sequence[Matcher], candidate: Json, lookups: Lookups) -> bool:
    """Whether KubeVirt would take a VM without some of its matchers."""
    left_out = [matcher.field for matcher in without]
    spec = {field: value for field, value in candidate["spec"].items() if field not in left_out}
    try:
        vm = read_vm({**candidate, "spec": spec}, lookups.rules)
        return webhooks.evaluate_vm(vm, lookups.get, lookups.configuration()).is_allowed
    except Crash:
        return False


def _deny(
    code: str, status: int, causes: Sequence[Cause], message: str = "", warnings: tuple[Reason, ...] = ()
) -> Decision:
    text = message or ", ".join(cause.what for cause in causes)
    denial = Denial(status, text, tuple(FieldCause(cause.reason, cause.what, cause.field) for cause in causes))
    return Decision((Reason(code, text),), denial=denial, warnings=warnings)
