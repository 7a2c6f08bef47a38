"""What the API server would send: the review of an object, and the endpoints that would receive it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.wire import request_of
from webhook.cluster.source import Cluster
from webhook.errors import InputError, quote
from webhook.facts import KubeVirtKey, NamespaceKey
from webhook.k8s.views import Namespace
from webhook.k8s.yaml_builder import Document
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.kubevirt.pools import POOL, POOL_GROUP, REPLICA_SET, vm_of_pool, vmi_of_replica_set
from webhook.kubevirt.vm_templates import GROUP as TEMPLATE_GROUP
from webhook.kubevirt.vm_templates import KIND as TEMPLATE
from webhook.kubevirt.vm_templates import MissingParametersError, vm_of_template
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.snapshot import Settings

# The namespace of generated UIDs, so that the same input gives the same review.
_UID_SPACE: Final = uuid.UUID("5a7f0b0e-4d4c-5bb5-9b0e-6b2f3a0f7c11")
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
# The endpoint that names the resource of a kind.
_BY_KIND: Final = {(each.codec.kind, each.codec.group): each for each in reversed(ENDPOINTS)}


class ReviewRequest(msgspec.Struct, frozen=True):
    """One review to evaluate.

    Attributes:
        file: the name of the file, as the user gave it.
        line: the line of the object in the file.
        review: a whole AdmissionReview as plain JSON.
        origin: the object that makes the reviewed one, as ``KIND NAMESPACE/NAME``; None: it was given itself.
    """

    file: str
    line: int
    review: dict[str, Any]
    origin: str | None = None

    @property
    def source(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def request(self) -> dict[str, Any]:
        """``request`` of the AdmissionReview, plain JSON."""
        request: dict[str, Any] = self.review["request"]
        return request

    @property
    def body(self) -> bytes:
        """The AdmissionReview as encoded JSON."""
        return msgspec.json.encode(self.review)


class Sending(msgspec.Struct, frozen=True):
    """How manifests are sent.

    Attributes:
        user: the sender; None for KubeVirt's controller (launcher pods, and what pools and replica sets make) or an
            admin (other objects).
        namespace: of manifests that have none; None for ``default``.
        parameters: values of the parameters of VirtualMachineTemplates, by name.
    """

    user: str | None = None
    namespace: str | None = None
    parameters: Mapping[str, str] = {}


_AS_ADMIN: Final = Sending()


async def to_review_request(
    document: Document, cluster: Cluster, deadline: float, sending: Sending = _AS_ADMIN
) -> ReviewRequest:
    """The review in a document, or the review that creating its object would cause.

    The API server calls the endpoints for the VMs and VMIs of pools, replica sets and templates, so each of these
    stands for the first one that it makes.

    Args:
        document: an AdmissionReview, or the manifest of an object.
        cluster: finds KubeVirt's namespace, from which the sender of a launcher pod follows.
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        sending: how manifests are sent.

    Raises:
        InputError: the document is neither a review nor an object, has another namespace, or makes no VM.
        MissingParametersError: a required parameter of a template has no value.
    """
    source = f"{document.file}:{document.line}"
    value: Json = document.value
    if value.get("kind") == "AdmissionReview":
        try:
            request_of(value)
        except InputError as error:
            raise InputError(error.what, source, error.fix) from None
        return ReviewRequest(document.file, document.line, value)
    metadata = _check(value, source, sending.namespace)
    kind, own = value["kind"], metadata.get("namespace")
    template = _template(value)
    obj = _convert_for_review(value, template, source, sending.parameters)
    by_controller = template is not None and template.by_controller
    user = sending.user or await _sender(obj, cluster, deadline, by_controller=by_controller)
    namespace = obj["metadata"].get("namespace") or own or sending.namespace or "default"
    review = _review_of(obj, namespace, user)
    if template is None:
        return ReviewRequest(document.file, document.line, review)
    origin = f"{kind} {own or namespace}/{metadata.get('name') or ''}"
    return ReviewRequest(document.file, document.line_of(template.path), review, origin)


def is_reviewed(value: Json) -> bool:
    """Whether the API server calls kubevirt-webhook for objects of this kind, or for those that they make."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return False
    return (kind, version.rpartition("/")[0]) in _BY_KIND or kind == "AdmissionReview" or _template(value) is not None


class _Template(msgspec.Struct, frozen=True):
    """A kind whose objects make VMs or VMIs.

    Attributes:
        group: API group of the kind.
        path: where the template stands.
        by_controller: whether virt-controller creates what it makes; else a user does.
        make: returns the first object that it makes, from its value and the values of parameters.
    """

    group: str
    path: tuple[str, ...]
    by_controller: bool
    make: Callable[[Json, Mapping[str, str]], Json]


_TEMPLATES: Final = {
    POOL: _Template(POOL_GROUP, ("spec", "virtualMachineTemplate"), True, lambda value, _: vm_of_pool(value)),
    REPLICA_SET: _Template(
        names.KUBEVIRT_GROUP, ("spec", "template"), True, lambda value, _: vmi_of_replica_set(value)
    ),
    TEMPLATE: _Template(TEMPLATE_GROUP, ("spec", "virtualMachine"), False, vm_of_template),
}


def _template(value: Json) -> _Template | None:
    found = _TEMPLATES.get(value["kind"])
    return found if found and value["apiVersion"].rpartition("/")[0] == found.group else None


def _check(value: Json, source: str, namespace: str | None) -> Json:
    """The metadata of an object that can be sent.

    Raises:
        InputError: it is no object, or is in another namespace.
    """
    if not isinstance(value.get("kind"), str) or not isinstance(value.get("apiVersion"), str):
        raise InputError("apiVersion or kind is missing", source, "use an AdmissionReview or a manifest")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError("metadata is missing", source, "use a manifest with metadata.name")
    own = metadata.get("namespace")
    if namespace and own and own != namespace:
        what = f"metadata.namespace is {quote(str(own))}, but -n names {quote(namespace)}"
        raise InputError(what, source, "remove -n, or review this object separately")
    return metadata


def _convert_for_review(value: Json, template: _Template | None, source: str, parameters: Mapping[str, str]) -> Json:
    """The object that the API server reviews for a manifest."""
    if template is None:
        return _default_pod(value) if value["kind"] == "Pod" else value
    try:
        return template.make(value, parameters)
    except MissingParametersError:
        raise
    except InputError as error:
        raise InputError(error.what, f"{source}: {error.where}", error.fix) from None


def _review_of(obj: Json, namespace: str, user: str) -> Json:
    """The AdmissionReview of an object's creation."""
    kind = obj["kind"]
    group, _, version = obj["apiVersion"].rpartition("/")
    endpoint = _BY_KIND.get((kind, group))
    request = {
        "uid": str(uuid.uuid5(_UID_SPACE, msgspec.json.encode(obj, order="sorted").decode())),
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {
            "group": endpoint.group if endpoint else group,
            "version": version,
            "resource": endpoint.resource if endpoint else "",
        },
        "subResource": endpoint.sub_resource if endpoint else "",
        "name": obj["metadata"].get("name", ""),
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


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


async def _sender(obj: dict[str, Any], cluster: Cluster, deadline: float, *, by_controller: bool) -> str:
    labels = obj["metadata"].get("labels")
    is_launcher = isinstance(labels, dict) and labels.get(names.APP_LABEL) == names.LAUNCHER_APP
    if by_controller or (is_launcher and obj["kind"] == "Pod"):
        install = await cluster.read(KubeVirtKey(), deadline)
        if isinstance(install, KubeVirtInstall) and install.namespaces:
            return controller_account(min(install.namespaces))
    return "kubernetes-admin"


def _default_pod(pod: Json) -> Json:
    """A pod with what the API server defaults before webhooks see it, as far as kubevirt-webhook reads it."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or spec.get("schedulerName"):
        return pod
    return {**pod, "spec": {**spec, "schedulerName": names.DEFAULT_SCHEDULER}}
