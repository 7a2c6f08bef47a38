"""What is said of a request that no policy evaluates. Each function makes one sentence with its reason code."""

from __future__ import annotations

from webhook import names
from webhook.admission.decision import Reason
from webhook.errors import quote
from webhook.names import Code, Policy


def no_namespace() -> Reason:
    """Policies are switched on by namespaces' labels."""
    return Reason(Code.OUT_OF_SCOPE, "skipped: the object is not in a namespace")


def excluded_namespace(namespace: str) -> Reason:
    """The settings exclude the namespace, or KubeVirt runs in it."""
    return Reason(Code.EXCLUDED_NAMESPACE, f"skipped: namespace {namespace} is excluded")


def namespace_unreadable(namespace: str, why: str) -> Reason:
    """Whether the namespace has opted in is not known."""
    return Reason(Code.NAMESPACE_UNREADABLE, f"namespace {namespace} cannot be read: {why}")


def not_opted_in(policy: Policy) -> Reason:
    """The namespace does not have the policy's label."""
    label = names.policy_label(policy)
    return Reason(Code.OUT_OF_SCOPE, f"skipped: the namespace does not have the label {label}")


def switched_off(policy: Policy) -> Reason:
    """The namespace's label says off."""
    return Reason(Code.OUT_OF_SCOPE, f"skipped: the namespace has the label {names.policy_label(policy)}=off")


def unknown_mode(policy: Policy, value: str) -> Reason:
    """The namespace's label has a value that is not a mode."""
    label = names.policy_label(policy)
    text = (
        f"skipped: label {label} of the namespace has the invalid value {quote(value)};"
        " use enforce, warn, audit, or off"
    )
    return Reason(Code.UNKNOWN_MODE, text)


def out_of_scope() -> Reason:
    """The request is for none of the policy's objects."""
    return Reason(Code.OUT_OF_SCOPE, "skipped: the request is out of scope")


def other_subresource(name: str | None) -> Reason:
    """The webhook is registered for another subresource."""
    target = f"subresource {quote(name)}" if name else "object itself"
    return Reason(Code.OTHER_OPERATION, f"skipped: the policy does not evaluate the {target}")


def no_object(operation: str) -> Reason:
    """The request carries nothing to evaluate."""
    return Reason(Code.OTHER_OPERATION, f"skipped: the request has no object ({operation})")


def internal_error(uid: str) -> Reason:
    """An exception of kubevirt-webhook's own code; its log has the traceback."""
    return Reason(Code.BUG, f"internal error; see the kubevirt-webhook log for request UID {uid}")


def overloaded(why: str) -> Reason:
    """The request was not read, or had no turn in time."""
    return Reason(Code.OVERLOADED, why)


def too_deep() -> str:
    """Why an object cannot be evaluated, as a clause."""
    return "the object, or one that it refers to, is nested too deeply"


def not_evaluable(kind: str, why: str, code: str) -> Reason:
    """The object cannot be evaluated, however often it is sent."""
    return Reason(code, f"this {kind} cannot be evaluated: {why}")


def correct_the_object(reason: Reason) -> str:
    """The text of the denial for an object that cannot be evaluated."""
    return f"{reason.text}; correct the object and retry"


def not_evaluated_now(reason: Reason) -> str:
    """The text of the denial where kubevirt-webhook itself is at fault."""
    return f"this request cannot be evaluated now: {reason.text}; retry later"


def allowed_unchanged(kind: str, reason: Reason) -> Reason:
    """The warning about an object that was not evaluated and is let into the cluster as it is."""
    return Reason(reason.code, f"this {kind} was allowed without changes: {reason.text}")
