"""What a scan for drift looks at: kinds, namespaces and objects, and the review of each.

What a policy would have decided at an object's CREATE is not known any more. What counts is what it decides now: the
object as it is, as if it were created now. So that this does not report objects that were treated correctly:

* An object that carries the server's annotation for a policy is that policy's work, whatever became of it since.
* What KubeVirt and schedulers have written into it since is taken out (a pod's node), or the object is skipped by a
  policy that would take it for the owner's (a VM whose instancetype KubeVirt has captured is not validated against what
  the instancetype says today).
* What ends by itself is left alone: pods that have ended, objects that are being deleted, migrations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.k8s.json_tree import MAX_LEVELS, cut, is_too_deep
from webhook.k8s.resources import UNSTRUCTURED_PODS, Resource
from webhook.k8s.types.meta import Object, Unstructured
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.names import PolicyName
from webhook.policies.registry import BY_NAME, ENDPOINTS
from webhook.policy import Endpoint
from webhook.settings.model import Settings

_ENDED: Final = ("Succeeded", "Failed")


class ScannedKind(msgspec.Struct, frozen=True):
    """A kind of objects to list, with the parameters of the query, and the endpoints whose policies evaluate them."""

    resource: Resource[Unstructured]
    query: Mapping[str, str]
    endpoints: tuple[Endpoint, ...]


def _scanned_kind(resource: Resource[Unstructured], query: Mapping[str, str]) -> ScannedKind:
    target = (resource.group, resource.plural, "", names.ENFORCE)
    evaluates = (
        each
        for each in ENDPOINTS
        if (each.group, each.resource, each.sub_resource, each.stage) == target
        and BY_NAME[each.policy].judges_what_exists
    )
    return ScannedKind(resource, query, tuple(e for e in evaluates if "CREATE" in e.operations))


SCANNED_KINDS: Final = (
    _scanned_kind(UNSTRUCTURED_PODS, {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}),
    _scanned_kind(UNSTRUCTURED_VMS, {}),
    _scanned_kind(UNSTRUCTURED_VMIS, {}),
)


def scanned_kinds(policies: Collection[PolicyName], settings: Settings) -> list[ScannedKind]:
    """What to list in a namespace that enforces these policies: nothing that the settings have switched off."""
    chosen = (
        replace(
            kind,
            endpoints=tuple(
                each for each in kind.endpoints if each.policy in policies and each.is_on(settings.policy(each.policy))
            ),
        )
        for kind in SCANNED_KINDS
    )
    return [kind for kind in chosen if kind.endpoints]


def enforced_policies(namespace: Object, settings: Settings) -> frozenset[PolicyName]:
    """The policies for which the API server calls this server in a namespace, with mode ``enforce``."""
    meta, labels = namespace.meta, namespace.meta.labels or {}
    requirements = settings.webhooks.namespace_selector.match_expressions
    selector = (Expression(each.key, each.operator, each.values) for each in requirements)
    if meta.deletion_timestamp or meta.name in settings.every_excluded_namespace:
        return frozenset()
    if not all(expression.accepts(labels.get(expression.key)) for expression in selector):
        return frozenset()

    policies = {endpoint.policy for kind in SCANNED_KINDS for endpoint in kind.endpoints}
    modes = ((policy, settings.written_mode(policy, meta.name or "", labels)) for policy in policies)
    return frozenset(policy for policy, mode in modes if mode == names.ENFORCE)


def is_evaluated(endpoint: Endpoint, stored: Unstructured) -> bool:
    """Whether a policy can say of an object that exists what it would say at its CREATE."""
    status = stored.status or {}
    if stored.meta.deletion_timestamp or (endpoint.kind == "Pod" and status.get("phase") in _ENDED):
        return False
    if any(stored.meta.annotation(key) for key in BY_NAME[endpoint.policy].marks):
        return False
    spec = stored.spec or {}
    # A VM whose instancetype or preference KubeVirt has captured.
    is_captured = any(
        status.get(f"{field}Ref") or (isinstance(spec.get(field), dict) and spec[field].get("revisionName"))
        for field in ("instancetype", "preference")
    )
    return endpoint.verb != "validate" or not is_captured or BY_NAME[endpoint.policy].judges_captured


def review(endpoint: Endpoint, stored: Unstructured, user: str) -> bytes:
    """The AdmissionReview of creating an object again, which fits all endpoints of its resource."""
    obj = {**stored.plain(), "apiVersion": endpoint.api_version, "kind": endpoint.kind, "status": {}}
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
