"""What the API server would send: the review of a manifest, the requests of a VM's life, and who receives them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

import jsonpatch
import msgspec

from webhook import names
from webhook.admission.decision import Change, Reason
from webhook.admission.reasons import common
from webhook.admission.wire import request_of
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import (
    NOT_READ,
    HeadroomKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    ObjectKey,
    SchedulerHealth,
    SchedulerKey,
    VerdictKey,
    VmiKey,
)
from webhook.forecast.certain import CertainReviewer, is_uncertain
from webhook.forecast.snapshot import CREATED_BY
from webhook.k8s.client.api import Forbidden
from webhook.k8s.documents import Document
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace, View
from webhook.kubevirt import pools, templates
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.launcher import controller_account
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.placement.demand import COMPUTE
from webhook.placement.index import NodeIndex
from webhook.placement.machines import UNFINISHED, LauncherPod
from webhook.placement.nodes import CPU
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.policies.preemption.pods import BY_TAINT
from webhook.policies.registry import ENDPOINTS
from webhook.policy import Endpoint
from webhook.settings.model import Settings

# The namespace of generated UIDs, so that the same input gives the same review.
_UID_SPACE: Final = uuid.UUID("5a7f0b0e-4d4c-5bb5-9b0e-6b2f3a0f7c11")
# The endpoint that names the resource of a kind.
_BY_KIND: Final = {(each.codec.kind, each.codec.group): each for each in reversed(ENDPOINTS)}
T = TypeVar("T")

_ALL_UNFINISHED: Final = ListKey(UNFINISHED, "")
_VMI: Final = "VirtualMachineInstance"
DELETION: Final = "Deletion"
DRAIN: Final = "Drain"
# The user of whom nothing is said.
OWNER: Final = "kubernetes-admin"


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
    user = sending.user or OWNER
    if not sending.user and ((template and template.by_controller) or (is_launcher and obj["kind"] == "Pod")):
        user = await _controller(cluster, deadline) or OWNER
    namespace = obj["metadata"].get("namespace") or own or sending.effective_namespace
    if is_namespace(obj):
        # As the API server sends it.
        namespace = obj["metadata"].get("name") or ""
    uid = str(uuid.uuid5(_UID_SPACE, msgspec.json.encode(obj, order="sorted").decode()))
    review = _review_of(_request_of(obj, namespace, user, uid, dry_run=False))
    if template is None:
        return ReviewRequest(document.file, document.line, review)
    origin = f"{kind} {own or namespace}/{metadata.get('name') or ''}"
    return ReviewRequest(document.file, document.line_of(template.path), review, origin)


def is_namespace(value: Json) -> bool:
    """Whether it is a Namespace, of which its own labels and annotations count."""
    return value.get("kind") == NAMESPACES.kind and value.get("apiVersion") == NAMESPACES.api_version


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
    written = request.get("object")
    namespace: Namespace | Unavailable | None
    if isinstance(written, dict) and is_namespace(written):
        namespace = _namespace_in(written)
    else:
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


def _namespace_in(value: Json) -> Namespace | None:
    """The Namespace that a manifest has; None: it cannot be read."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, Namespace)
    return None


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
        unread: why something that it depends on could not be read, clauses. Whoever asks may read less than the server,
            so what the policy says of it holds for the answer, not for the cluster. Of the installed settings it says
            nothing: a reason with the code ``settings-unreadable`` stands for what depends on them.
    """

    policy: str
    mode: str
    decision: str
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    unread: tuple[str, ...] = ()


class RequestReport(View, frozen=True):
    """A request that creates an object of a kind in the life of a VM, and what the policies do with it, in order.

    The kind is `DELETION` where its pod is deleted for another pod, or by a taint, and `DRAIN` where a drain of its
    node evicts it.

    Attributes:
        unknown_schedulers: the schedulers on whose health it depends, and whose health is not known to whoever asks,
            each with why, as clauses. The server may know.
        outcome: what becomes of the VM then, a clause; empty: that follows from the decisions, or is not known.
    """

    kind: str
    policies: tuple[PolicyReport, ...]
    unknown_schedulers: tuple[str, ...] = ()
    outcome: str = ""

    @property
    def is_denied(self) -> bool:
        """Whether a policy denies it."""
        return any(each.decision == "denied" for each in self.policies)


class _Remembering(Cluster):
    """A cluster that remembers what could not be read of it, by key, and the schedulers whose health is not known.

    A user who may list the migrations of a namespace alone gets those for the cluster's: fewer are unfinished then, of
    which the limits are for the whole cluster.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster: Final = cluster
        self._namespace: Final = namespace
        self.unread: Final[dict[Key[Any], str]] = {}
        self.unknown_schedulers: Final[dict[str, str]] = {}

    def peek(self, key: Key[Any]) -> object:
        answer = self._cluster.peek(key)
        if isinstance(answer, Unavailable):
            self.unread[key] = answer.why
            return NOT_READ if key == _ALL_UNFINISHED else answer
        if isinstance(key, SchedulerKey) and isinstance(answer, SchedulerHealth) and answer.state == "unknown":
            self.unknown_schedulers[key.name] = answer.why
        return answer

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        answer = await self._cluster.read(key, deadline)
        if isinstance(answer, Unavailable):
            self.unread[key] = answer.why
            if key == _ALL_UNFINISHED and isinstance(answer, Forbidden):
                own = await self._cluster.read(ListKey(UNFINISHED, self._namespace), deadline)
                return cast("T | None | Unavailable", own)
        return answer

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        return self._cluster.ages(keys)


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


class WithHeadroom(Cluster):
    """A cluster whose headroom is counted when it is asked for, from what another source reads of it: no server counts.

    Args:
        cluster: answers everything else.
        once: reads all pods, VMs and nodes.
    """

    def __init__(self, cluster: Cluster, once: Cluster) -> None:
        self._cluster: Final = cluster
        self._once: Final = once

    def peek(self, key: Key[Any]) -> object:
        """The answer of whoever has it, if it is in memory."""
        return (self._once if isinstance(key, HeadroomKey | VerdictKey) else self._cluster).peek(key)

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        """The answer of whoever has it."""
        return await (self._once if isinstance(key, HeadroomKey | VerdictKey) else self._cluster).read(key, deadline)

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        """Those of what is watched."""
        return self._cluster.ages(keys)


class _Cordoned(Cluster):
    """A cluster in which a node is cordoned, as a drain does first."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster: Final = cluster
        self._node: Final = node

    def peek(self, key: Key[Any]) -> object:
        return self._changed(self._cluster.peek(key))

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        answer = await self._cluster.read(key, deadline)
        return cast("T | None | Unavailable", self._changed(answer))

    def _changed(self, answer: object) -> object:
        if not isinstance(answer, NodeIndex):
            return answer
        # The cluster's own stays as it is.
        return NodeIndex(
            msgspec.structs.replace(each, unschedulable=True) if each.name == self._node else each for each in answer
        )

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
    controller = await _controller(cluster, deadline) or controller_account("kubevirt")
    user = OWNER if by_owner else controller
    request = _request_of(obj, obj["metadata"]["namespace"], user, "explain", dry_run=True)
    report = await _send(obj["kind"], request, around, settings, deadline)
    return request["object"], report


async def remove(cluster: Cluster, settings: Settings, deadline: float, pod: Json, *, by: str) -> RequestReport:
    """What the policies do with the deletion of a pod by a controller, of which the arguments are as for `create`."""
    request = _request_of(pod, pod["metadata"]["namespace"], by, "explain", dry_run=True)
    request |= {"operation": "DELETE", "object": None, "oldObject": pod}
    report = await _send(DELETION, request, cluster, settings, deadline)
    return msgspec.structs.replace(report, outcome=_outcome_of_removal(report.policies, settings))


def _is_incomplete(reports: Iterable[PolicyReport]) -> bool:
    """Whether something that a policy needs could not be read."""
    unread = (common.LOOKUP_FAILED, common.SETTINGS_UNREADABLE)
    return any(reason.code in unread for each in reports for reason in each.reasons)


def _outcome_of_removal(reports: Iterable[PolicyReport], settings: Settings) -> str:
    preemption = [each for each in reports if each.policy == "preemption"]
    # Settings that are not known may switch it on in all namespaces.
    if _is_incomplete(preemption) or (settings.gap and not preemption):
        return ""
    saving = [each for each in preemption if each.mode == names.ENFORCE and each.decision == "denied"]
    if not saving:
        return "the VM is killed"
    # Whoever may read less than the server sees fewer migrations.
    limits = ", unless a limit of the whole cluster is reached" if any(each.unread for each in saving) else ""
    return f"the VM stays until it has moved{limits}"


async def drain(
    cluster: Cluster, settings: Settings, deadline: float, eviction: Json, node: str, *, effect: str
) -> RequestReport:
    """What the policies do with an eviction of a pod once its node is cordoned; the arguments are as for `create`.

    The effect is KubeVirt's, if they allow it, a clause.
    """
    request = _request_of(eviction, eviction["metadata"]["namespace"], OWNER, "explain", dry_run=True)
    report = await _send(DRAIN, request, _Cordoned(cluster, node), settings, deadline)
    is_denied = any(each.mode == names.ENFORCE and each.decision == "denied" for each in report.policies)
    outcome = "the eviction is denied, and the drain waits" if is_denied else effect
    if not is_denied and outcome and (settings.gap or _is_incomplete(report.policies)):
        outcome += ", unless a policy that was not evaluated denies the eviction"
    return msgspec.structs.replace(report, outcome=outcome)


async def _send(kind: str, request: Json, cluster: Cluster, settings: Settings, deadline: float) -> RequestReport:
    """What the policies do with a request, whose object becomes what they make of it."""
    around = _Remembering(cluster, request["namespace"])
    reviewer = CertainReviewer(around, settings)
    reports = []
    unknown: dict[str, str] = {}
    for endpoint in await endpoints(request, around, settings, deadline):
        around.unread.clear()
        around.unknown_schedulers.clear()
        evaluation = await reviewer.evaluate(endpoint, msgspec.json.encode(_review_of(request)), deadline)
        reasons, warnings = tuple(evaluation.decision.reasons), tuple(evaluation.outcome.warnings)
        changes = tuple(change.redact() for change in evaluation.decision.changes)
        unread = tuple(dict.fromkeys(around.unread.values()))
        if is_uncertain(reasons):
            # What was read was asked for by settings that need not be those of the cluster.
            unread = ()
        else:
            unknown |= around.unknown_schedulers
        reports.append(
            PolicyReport(endpoint.policy, evaluation.mode, evaluation.label, reasons, changes, warnings, unread)
        )
        if evaluation.patch:
            request["object"] = jsonpatch.apply_patch(request["object"], json.loads(evaluation.patch))
    return RequestReport(kind, tuple(reports), tuple(f"{name} ({why})" for name, why in sorted(unknown.items())))


# What KubeVirt copies from a VMI's spec into its pod, as far as the policies read it.
_PLACING: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


def pod_of(vmi: Json, requests: Mapping[str, int] | None = None, selector: Mapping[str, str] = {}) -> Json:
    """The launcher pod of a VMI, as far as the policies read it.

    Args:
        vmi: plain JSON.
        requests: what it requests, in kube-scheduler's unit by resource; None: that is not known.
        selector: the labels of nodes that KubeVirt writes into its node selector.
    """
    metadata, spec = vmi["metadata"], vmi["spec"]
    amounts = {name: f"{amount}m" if name == CPU else str(amount) for name, amount in (requests or {}).items()}
    containers = [] if requests is None else [{"name": COMPUTE, "resources": {"requests": amounts}}]
    placing = {field: spec[field] for field in _PLACING if spec.get(field)}
    if selector:
        placing["nodeSelector"] = {**placing.get("nodeSelector", {}), **selector}
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
            **placing,
            "containers": containers,
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


def eviction_of(namespace: str, pod: str, requester: str = "") -> Json:
    """An eviction of a pod as the descheduler sends it, or without a requester ``kubectl drain``."""
    annotations = {REQUESTED_BY: requester} if requester else {}
    metadata = {"name": pod, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}


def tainted_away(pod: LauncherPod, namespace: str, now: float) -> Json:
    """The pod of a VM as the controller deletes it that enforces taints: it writes a condition first.

    A scheduler does the same. Which pods wait for the room counts in addition then.
    """
    meta, since = pod.meta, datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    owners = msgspec.to_builtins(meta.owner_references or [])
    condition = {"type": "DisruptionTarget", "status": "True", "reason": BY_TAINT, "lastTransitionTime": since}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta.name,
            "namespace": namespace,
            "uid": meta.uid,
            "labels": dict(meta.labels or {}),
            "ownerReferences": owners,
        },
        "spec": {"nodeName": pod.node_name},
        "status": {"phase": pod.phase, "conditions": [condition]},
    }
