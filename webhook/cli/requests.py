"""What the API server would send: the review of an object, and the endpoints that would receive it."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.wire import request_of
from webhook.cli import given
from webhook.cluster.source import Cluster
from webhook.errors import InputError, quote
from webhook.facts import KubeVirtKey, NamespaceKey
from webhook.k8s.views import Namespace
from webhook.k8s.yaml_builder import Document
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.snapshot import Settings

# The namespace of generated UIDs, so that the same input gives the same review.
_UID_SPACE: Final = uuid.UUID("5a7f0b0e-4d4c-5bb5-9b0e-6b2f3a0f7c11")


class ReviewRequest(msgspec.Struct, frozen=True):
    """One review to evaluate.

    Attributes:
        source: file and line, for messages.
        review: a whole AdmissionReview as plain JSON.
    """

    source: str
    review: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        """``request`` of the AdmissionReview, plain JSON."""
        request: dict[str, Any] = self.review["request"]
        return request

    @property
    def body(self) -> bytes:
        """The AdmissionReview as encoded JSON."""
        return msgspec.json.encode(self.review)


def read(paths: tuple[str, ...], stdin: bytes | None) -> list[Document]:
    """All documents in files; ``-`` is standard input. A List is replaced by its items.

    Raises:
        InputError: a file cannot be read, is not valid YAML or JSON, or there are no documents.
    """
    documents = given.documents(paths, stdin)
    if not documents:
        raise InputError("the input has no documents", ", ".join(paths), "use AdmissionReviews or manifests")
    return documents


async def to_review_request(
    document: Document, cluster: Cluster, user: str | None, deadline: float, namespace: str | None = None
) -> ReviewRequest:
    """The review in a document, or the review that creating its object would cause.

    Args:
        document: an AdmissionReview, or the manifest of an object.
        cluster: finds KubeVirt's namespace, from which the sender of a launcher pod follows.
        user: the sender of a manifest; None for KubeVirt's controller (launcher pods) or an admin (other objects).
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        namespace: of manifests that have none; None for ``default``.

    Raises:
        InputError: the document is neither a review nor an object, or has another namespace.
    """
    source = f"{document.file}:{document.line}"
    value: dict[str, Any] = document.value  # `read` returns only objects
    if value.get("kind") == "AdmissionReview":
        try:
            request_of(value)
        except InputError as error:
            raise InputError(error.what, source, error.fix) from None
        return ReviewRequest(source, value)
    kind = value.get("kind")
    if not isinstance(kind, str) or not isinstance(value.get("apiVersion"), str):
        raise InputError("apiVersion or kind is missing", source, "use an AdmissionReview or a manifest")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError("metadata is missing", source, "use a manifest with metadata.name")
    own = metadata.get("namespace")
    if namespace and own and own != namespace:
        what = f"metadata.namespace is {quote(str(own))}, but -n names {quote(namespace)}"
        raise InputError(what, source, "remove -n, or review this object separately")
    group, _, version = value["apiVersion"].rpartition("/")
    endpoint = next((e for e in ENDPOINTS if (e.codec.kind, e.codec.group) == (kind, group)), None)
    obj = copy.deepcopy(value)
    if kind == "Pod":
        _default_pod(obj)
    sender = user or await _sender(obj, cluster, deadline)
    request = {
        "uid": str(uuid.uuid5(_UID_SPACE, json.dumps(value, sort_keys=True))),
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {
            "group": endpoint.group if endpoint else group,
            "version": version,
            "resource": endpoint.resource if endpoint else "",
        },
        "subResource": endpoint.sub_resource if endpoint else "",
        "name": metadata.get("name", ""),
        "namespace": own or namespace or "default",
        "operation": "CREATE",
        "userInfo": {"username": sender, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
    }
    return ReviewRequest(source, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def endpoints(request: dict[str, Any], cluster: Cluster, settings: Settings, deadline: float) -> list[Endpoint]:
    """The endpoints that the API server would call for a request, in its order.

    The stage follows the namespace's label. If the namespace has opted in to no policy, these are all endpoints of the
    resource, which report why they do nothing.
    """
    resource = request.get("resource") or {}
    found = await cluster.read(NamespaceKey(str(request.get("namespace") or ""), fresh=True), deadline)
    matching, opted_in = [], []
    for endpoint in ENDPOINTS:
        label = found.meta.label(names.policy_label(endpoint.policy)) if isinstance(found, Namespace) else None
        stage = names.OBSERVE if label in (names.WARN, names.AUDIT) else names.ENFORCE
        if (
            endpoint.stage == stage
            and endpoint.group == resource.get("group", "")
            and endpoint.resource == resource.get("resource")
            and endpoint.sub_resource == (request.get("subResource") or "")
            and request.get("operation") in endpoint.operations
        ):
            matching.append(endpoint)
            if label is not None or settings.policy(endpoint.policy).cluster_wide:
                opted_in.append(endpoint)
    return opted_in or matching


async def _sender(obj: dict[str, Any], cluster: Cluster, deadline: float) -> str:
    labels = obj["metadata"].get("labels")
    if isinstance(labels, dict) and labels.get(names.APP_LABEL) == names.LAUNCHER_APP and obj["kind"] == "Pod":
        install = await cluster.read(KubeVirtKey(), deadline)
        if isinstance(install, KubeVirtInstall) and install.namespaces:
            return controller_account(min(install.namespaces))
    return "kubernetes-admin"


def _default_pod(pod: dict[str, Any]) -> None:
    """Set what the API server defaults before webhooks see a pod, as far as kubevirt-webhook reads it."""
    spec = pod.get("spec")
    if isinstance(spec, dict) and not spec.get("schedulerName"):
        spec["schedulerName"] = names.DEFAULT_SCHEDULER
