"""Which objects are scanned, and the review that creating one of them now would lead to.

What a policy would have decided at an object's CREATE is not known any more. What counts is what it decides now: the
object as it is, as if it were created anew. So that this does not report objects that were treated correctly:

* An object that carries the server's annotation for a policy is that policy's work, whatever became of it since.
* What KubeVirt and schedulers have written into it since is taken out (a pod's node), or the object is skipped by a
  policy that would take it for the owner's (a VM whose instancetype KubeVirt has captured is not validated against what
  the instancetype says today).
* What ends by itself is left alone: pods that have ended, objects that are being deleted, migrations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from webhook import names
from webhook.k8s.client.resources import UNSTRUCTURED_PODS, Resource
from webhook.k8s.json_tree import MAX_LEVELS, cut, is_too_deep
from webhook.k8s.views import Object, Unstructured
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.names import Policy
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.snapshot import Settings

_ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    names.SCHEDULING: (names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_SPREAD_ANNOTATION),
    names.INSTANCETYPES: (names.INJECTED_INSTANCETYPE_ANNOTATION, names.INJECTED_PREFERENCE_ANNOTATION),
}
_ENDED: Final = ("Succeeded", "Failed")


class Look(msgspec.Struct, frozen=True):
    """A kind of objects to list, and the endpoints whose policies evaluate them.

    Attributes:
        query: parameters of the list's query.
    """

    resource: Resource[Unstructured]
    query: Mapping[str, str]
    endpoints: tuple[Endpoint, ...]


def _look(resource: Resource[Unstructured], query: Mapping[str, str]) -> Look:
    evaluates = (
        endpoint
        for endpoint in ENDPOINTS
        if (endpoint.group, endpoint.resource, endpoint.sub_resource) == (resource.group, resource.plural, "")
        and endpoint.stage == names.ENFORCE
        and "CREATE" in endpoint.operations
    )
    return Look(resource, query, tuple(evaluates))


LOOKS: Final = (
    _look(UNSTRUCTURED_PODS, {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}),
    _look(UNSTRUCTURED_VMS, {}),
    _look(UNSTRUCTURED_VMIS, {}),
)


def looks(policies: Iterable[Policy], settings: Settings) -> list[Look]:
    """What to list in a namespace that enforces these policies: nothing that the settings have switched off."""
    off = {
        (names.SCHEDULING, UNSTRUCTURED_VMS.plural): not settings.scheduling.looks_at_virtual_machines,
        (names.SCHEDULING, UNSTRUCTURED_VMIS.plural): not settings.scheduling.looks_at_virtual_machine_instances,
        (names.INSTANCETYPES, UNSTRUCTURED_VMS.plural): not settings.instancetypes.virtual_machines,
        (names.INSTANCETYPES, UNSTRUCTURED_VMIS.plural): not settings.instancetypes.virtual_machine_instances,
    }
    enforced, chosen = frozenset(policies), []
    for look in LOOKS:
        evaluates = [e for e in look.endpoints if e.policy in enforced and not off.get((e.policy, e.resource))]
        if evaluates:
            chosen.append(msgspec.structs.replace(look, endpoints=tuple(evaluates)))
    return chosen


def enforced_policies(namespace: Object, settings: Settings) -> frozenset[Policy]:
    """The policies for which the API server calls this server in a namespace, with mode ``enforce``."""
    meta = namespace.meta
    labels = meta.labels or {}
    if meta.deletion_timestamp or meta.name in settings.excluded_namespaces:
        return frozenset()
    if not all(_holds(expression, labels) for expression in settings.webhooks.namespace_selector):
        return frozenset()
    policies = {endpoint.policy for look in LOOKS for endpoint in look.endpoints}
    return frozenset(
        policy
        for policy in policies
        if labels.get(names.policy_label(policy), names.ENFORCE if settings.policy(policy).cluster_wide else "")
        == names.ENFORCE
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels meet a requirement of a label selector (k8s.io/apimachinery, pkg/labels)."""
    value, operator = labels.get(expression["key"]), str(expression["operator"])
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    listed: bool = value in expression.get("values", ())
    return listed == (operator == "In")


class Candidate(msgspec.Struct, frozen=True):
    """An object to be evaluated, in little memory: a whole list of them is kept.

    Attributes:
        created: its ``creationTimestamp``.
        endpoints: the endpoints whose policies evaluate it.
        review: the AdmissionReview of creating it anew, encoded.
    """

    namespace: str
    name: str
    uid: str
    created: str
    endpoints: tuple[Endpoint, ...]
    review: bytes


def candidate(look: Look, stored: Unstructured, user: str) -> Candidate | None:
    """An object of a list; None where no policy can evaluate it.

    Args:
        look: the resource of the list, with its endpoints.
        stored: the object.
        user: the user that counts as its creator.
    """
    endpoints = tuple(endpoint for endpoint in look.endpoints if is_evaluated(endpoint, stored))
    if not endpoints:
        return None
    meta = stored.meta
    return Candidate(
        meta.namespace or "",
        meta.name or "",
        meta.uid or "",
        meta.creation_timestamp or "",
        endpoints,
        review(endpoints[0], stored, user),
    )


def is_evaluated(endpoint: Endpoint, stored: Unstructured) -> bool:
    """Whether a policy can say of an object that exists what it would say at its CREATE."""
    status = stored.status or {}
    if stored.meta.deletion_timestamp or (endpoint.kind == "Pod" and status.get("phase") in _ENDED):
        return False
    if any(stored.meta.annotation(injected_value) for injected_value in _ANNOTATIONS.get(endpoint.policy, ())):
        return False
    return endpoint.verb != "validate" or not _is_captured(stored)


def _is_captured(vm: Unstructured) -> bool:
    status, spec = vm.status or {}, vm.spec or {}
    return any(
        status.get(f"{field}Ref") or (isinstance(spec.get(field), dict) and spec[field].get("revisionName"))
        for field in ("instancetype", "preference")
    )


def review(endpoint: Endpoint, stored: Unstructured, user: str) -> bytes:
    """The AdmissionReview of creating an object anew, which fits all endpoints of its resource.

    Args:
        endpoint: one of them.
        stored: the object.
        user: the user that counts as its creator.
    """
    obj = {**stored.plain(), "apiVersion": _api_version(endpoint), "kind": endpoint.kind, "status": {}}
    if endpoint.kind == "Pod" and stored.spec:
        obj["spec"] = {key: value for key, value in stored.spec.items() if key != "nodeName"}
    if is_too_deep(stored):
        # Too deep it stays, but such that it can be encoded.
        obj = cut(obj, MAX_LEVELS + 1)
    request = {
        "uid": stored.meta.uid or "none",
        "kind": {"group": endpoint.group, "version": endpoint.version, "kind": endpoint.kind},
        "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
        "name": stored.meta.name,
        "namespace": stored.meta.namespace,
        "operation": "CREATE",
        "userInfo": {"username": user},
        "object": obj,
        "dryRun": True,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def _api_version(endpoint: Endpoint) -> str:
    return f"{endpoint.group}/{endpoint.version}" if endpoint.group else endpoint.version
