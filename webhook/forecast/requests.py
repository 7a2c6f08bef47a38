"""What the API server would send: the review of a manifest, the requests of a VM's life, and who receives them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import jsonpatch
import msgspec

from webhook import names
from webhook.admission.audit import NoAudit
from webhook.admission.decision import Change, Reason
from webhook.admission.wire import request_of
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import Key, KubeVirtKey, NamespaceKey, ObjectKey, VmiKey
from webhook.forecast.snapshot import CREATED_BY
from webhook.k8s.documents import Document
from webhook.k8s.types.meta import Namespace, View
from webhook.kubevirt import pools, templates
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.launcher import controller_account
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.policies.registry import ENDPOINTS
from webhook.policy import Endpoint
from webhook.review.reviewer import Reviewer
from webhook.settings.model import Settings

# The namespace of generated UIDs, so that the same input gives the same review.
_UID_SPACE: Final = uuid.UUID("5a7f0b0e-4d4c-5bb5-9b0e-6b2f3a0f7c11")
# The endpoint that names the resource of a kind.
_BY_KIND: Final = {(each.codec.kind, each.codec.group): each for each in reversed(ENDPOINTS)}
T = TypeVar("T")

_VMI: Final = "VirtualMachineInstance"
_OWNER: Final = "kubernetes-admin"


class ReviewRequest(msgspec.Struct, frozen=True):
    """One review to evaluate.

    Attributes:
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
        namespace: of manifests, which must name no other one; None: they may.
        parameters: values of the parameters of VirtualMachineTemplates, by name.
        default_namespace: of manifests that have none, if ``namespace`` is None.
    """

    user: str | None = None
    namespace: str | None = None
    parameters: Mapping[str, str] = {}
    default_namespace: str = "default"

    @property
    def effective_namespace(self) -> str:
        """The namespace of manifests that have none."""
        return self.namespace or self.default_namespace


async def to_review_request(
    document: Document,
    cluster: Cluster,
    deadline: float,
    sending: Sending = Sending(),  # noqa: B008 - frozen
) -> ReviewRequest:
    """The review in a document, or the review that creating its object would cause, as it is sent.

    The API server calls the endpoints for the VMs and VMIs of pools, replica sets and templates, so each of these
    stands for the first one that it makes. Look-ups end at the deadline, on the running loop's clock, in seconds.

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
    _check_place(obj["metadata"], source)
    labels = obj["metadata"].get("labels")
    is_launcher = isinstance(labels, dict) and labels.get(names.APP_LABEL) == names.LAUNCHER_APP
    user = sending.user or _OWNER
    if not sending.user and ((template and template.by_controller) or (is_launcher and obj["kind"] == "Pod")):
        user = await _controller(cluster, deadline) or _OWNER
    namespace = obj["metadata"].get("namespace") or own or sending.effective_namespace
    uid = str(uuid.uuid5(_UID_SPACE, msgspec.json.encode(obj, order="sorted").decode()))
    review = _review_of(_request_of(obj, namespace, user, uid, dry_run=False))
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


def path_of_reviewed(value: Json) -> tuple[str, ...]:
    """Where the object that the API server reviews stands in an object: its template, itself, or that of a review."""
    if value.get("kind") == "AdmissionReview":
        return ("request", "object")
    template = _template(value)
    return template.path if template else ()


def holds_reviewed(value: Json) -> bool:
    """Whether it is a Template of OpenShift with objects that `is_reviewed` holds for: what it makes is not known."""
    group, kind = str(value.get("apiVersion")).rpartition("/")[0], value.get("kind")
    if (group, kind) != ("template.openshift.io", "Template"):
        return False
    objects = value.get("objects")
    return isinstance(objects, list) and any(isinstance(each, dict) and is_reviewed(each) for each in objects)


class _Template(msgspec.Struct, frozen=True):
    """A kind whose objects make VMs or VMIs: where the template is, who makes it, and the first one, by parameters."""

    group: str
    path: tuple[str, ...]
    by_controller: bool
    make: Callable[[Json, Mapping[str, str]], Json]


_TEMPLATES: Final = {
    pools.POOL: _Template(
        pools.POOL_GROUP, ("spec", "virtualMachineTemplate"), True, lambda value, _: pools.vm_of_pool(value)
    ),
    pools.REPLICA_SET: _Template(
        names.KUBEVIRT_GROUP, ("spec", "template"), True, lambda value, _: pools.vmi_of_replica_set(value)
    ),
    templates.KIND: _Template(templates.GROUP, ("spec", "virtualMachine"), False, templates.vm_of_template),
}


def _template(value: Json) -> _Template | None:
    template = _TEMPLATES.get(value["kind"])
    return template if template and value["apiVersion"].rpartition("/")[0] == template.group else None


def _check(value: Json, source: str, namespace: str | None) -> Json:
    """The metadata of an object that can be sent."""
    if not isinstance(value.get("kind"), str) or not isinstance(value.get("apiVersion"), str):
        raise InputError("apiVersion or kind is missing", source, "use an AdmissionReview or a manifest")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError("metadata is missing", source, "use a manifest with metadata.name")
    _check_place(metadata, source)
    own = metadata.get("namespace")
    if namespace and own and own != namespace:
        what = f"metadata.namespace is {quote(str(own))}, but -n names {quote(namespace)}"
        raise InputError(what, source, "remove -n, or review this object separately")
    return metadata


def _check_place(metadata: Json, source: str) -> None:
    for field in ("name", "namespace"):
        if not isinstance(metadata.get(field), str | None):
            raise InputError(f"metadata.{field} is not a string", source, "put it in quotes")


def _convert_for_review(value: Json, template: _Template | None, source: str, parameters: Mapping[str, str]) -> Json:
    """The object that the API server reviews for a manifest."""
    if template is None:
        spec = value.get("spec")
        if value["kind"] != "Pod" or not isinstance(spec, dict) or spec.get("schedulerName"):
            return value
        # What the API server defaults before webhooks see a pod, as far as kubevirt-webhook reads it.
        return {**value, "spec": {**spec, "schedulerName": names.DEFAULT_SCHEDULER}}
    try:
        return template.make(value, parameters)
    except templates.MissingParametersError:
        raise
    except InputError as error:
        raise InputError(error.what, f"{source}: {error.where}", error.fix) from None


def _request_of(obj: Json, namespace: str, user: str, uid: str, *, dry_run: bool) -> Json:
    """The request to create an object; the endpoints name the resource of its kind."""
    kind = obj["kind"]
    group, _, version = obj["apiVersion"].rpartition("/")
    endpoint = _BY_KIND.get((kind, group))
    resource = (endpoint.group, endpoint.resource, endpoint.sub_resource) if endpoint else (group, "", "")
    return {
        "uid": uid,
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": resource[0], "version": version, "resource": resource[1]},
        "subResource": resource[2],
        "name": obj["metadata"].get("name", ""),
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": dry_run,
    }


def _review_of(request: Json) -> Json:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def endpoints(request: dict[str, Any], cluster: Cluster, settings: Settings, deadline: float) -> list[Endpoint]:
    """The endpoints that the API server would call for a request, in its order.

    The stage follows the namespace's label. If the namespace has opted in to no policy, these are all endpoints of the
    resource, which report why they do nothing.
    """
    resource = request.get("resource") or {}
    place = resource.get("group", ""), resource.get("resource"), request.get("subResource") or ""
    namespace = await cluster.read(NamespaceKey(str(request.get("namespace") or ""), uncached=True), deadline)
    matching, opted_in = [], []
    for endpoint in ENDPOINTS:
        label = namespace.meta.label(names.policy_label(endpoint.policy)) if isinstance(namespace, Namespace) else None
        stage = names.OBSERVE if label in (names.WARN, names.AUDIT) else names.ENFORCE
        own = (endpoint.stage, endpoint.group, endpoint.resource, endpoint.sub_resource)
        if own == (stage, *place) and request.get("operation") in endpoint.operations:
            matching.append(endpoint)
            if label is not None or settings.policy(endpoint.policy).cluster_wide:
                opted_in.append(endpoint)
    return opted_in or matching


async def _controller(cluster: Cluster, deadline: float) -> str:
    """The account of KubeVirt's controller; empty: KubeVirt's namespace is not known."""
    install = await cluster.read(KubeVirtKey(), deadline)
    namespace = isinstance(install, KubeVirtInstall) and min(install.namespaces, default="")
    return controller_account(namespace) if namespace else ""


class PolicyReport(View, frozen=True):
    """What one policy does with a request.

    Attributes:
        reasons: why, each with its code.
        changes: what it changes, or would change in mode ``enforce``.
    """

    policy: str
    mode: str
    decision: str
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]


class RequestReport(View, frozen=True):
    """A request that creates an object of a kind in the life of a VM, and what the policies do with it, in order."""

    kind: str
    policies: tuple[PolicyReport, ...]

    @property
    def is_denied(self) -> bool:
        """Whether a policy denies it."""
        return any(each.decision == "denied" for each in self.policies)


class _WithVmi(Cluster):
    """A cluster in which a VMI (plain JSON) exists already that KubeVirt has yet to create."""

    def __init__(self, cluster: Cluster, vmi: Json) -> None:
        self._cluster: Final = cluster
        self._vmi: Final = vmi

    def peek(self, key: Key[Any]) -> object:
        return self._own(key) or self._cluster.peek(key)

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        if own := self._own(key):
            return cast("T", own)
        return await self._cluster.read(key, deadline)

    def _own(self, key: Key[Any]) -> object:
        place = self._vmi["metadata"]["namespace"], self._vmi["metadata"]["name"]
        if not isinstance(key, VmiKey | ObjectKey) or (key.namespace, key.name) != place:
            return None
        if isinstance(key, VmiKey):
            return msgspec.convert(self._vmi, VirtualMachineInstance)
        return msgspec.convert(self._vmi, key.resource.view) if key.resource.kind == _VMI else None

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        return self._cluster.ages(keys)


async def create(
    cluster: Cluster, settings: Settings, deadline: float, obj: Json, *, vmi: Json | None = None, by_owner: bool = False
) -> tuple[Json, RequestReport]:
    """The object after all policies, as the API server calls them, and what each of them did.

    The VM's owner or, by default, KubeVirt's controller sends it; the argument stays as it is. Look-ups end at the
    deadline, on the running loop's clock, in seconds. It is as if the VMI existed, which the cluster does not have.
    """
    around = _WithVmi(cluster, vmi) if vmi else cluster
    reviewer = Reviewer(around, lambda: settings, NoAudit())
    controller = await _controller(cluster, deadline) or controller_account("kubevirt")
    user = _OWNER if by_owner else controller
    request = _request_of(obj, obj["metadata"]["namespace"], user, "explain", dry_run=True)
    reports = []
    for endpoint in await endpoints(request, around, settings, deadline):
        evaluation = await reviewer.evaluate(endpoint, msgspec.json.encode(_review_of(request)), deadline)
        reasons, warnings = tuple(evaluation.decision.reasons), tuple(evaluation.outcome.warnings)
        changes = tuple(change.redact() for change in evaluation.decision.changes)
        reports.append(PolicyReport(endpoint.policy, evaluation.mode, evaluation.label, reasons, changes, warnings))
        if evaluation.patch:
            request["object"] = jsonpatch.apply_patch(request["object"], json.loads(evaluation.patch))
    return request["object"], RequestReport(obj["kind"], tuple(reports))


# What KubeVirt copies from a VMI's spec into its pod, as far as the policies read it.
_PLACING: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


def pod_of(vmi: Json) -> Json:
    """The launcher pod of a VMI, as far as the policies read it."""
    metadata, spec = vmi["metadata"], vmi["spec"]
    owner = {"apiVersion": "kubevirt.io/v1", "kind": _VMI, "name": metadata["name"], "uid": metadata.get("uid", "")}
    labels = {names.APP_LABEL: names.LAUNCHER_APP, CREATED_BY: metadata.get("uid", "")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"virt-launcher-{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), "kubevirt.io/domain": metadata["name"]},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "schedulerName": spec.get("schedulerName") or names.DEFAULT_SCHEDULER,
            **{field: spec[field] for field in _PLACING if spec.get(field)},
            "containers": [{"name": "compute"}],
        },
    }


def migration_of(namespace: str, name: str) -> Json:
    """A migration of a VM as ``virtctl migrate`` asks for it."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": namespace},
        "spec": {"vmiName": name},
    }


def eviction_of(namespace: str, pod: str, requester: str) -> Json:
    """An eviction of a pod as the descheduler sends it."""
    metadata = {"name": pod, "namespace": namespace, "annotations": {REQUESTED_BY: requester}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
