"""The evaluation of one document: every endpoint that the API server would call, each with the patches before it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import jsonpatch
import msgspec

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.cli import near
from webhook.cli.review.result import WEIGHT, Result
from webhook.cli.schemas import release_in
from webhook.cluster.directory import KINDS
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import NamespaceKey
from webhook.forecast import misplaced, requests
from webhook.forecast.certain import CertainReviewer, is_uncertain
from webhook.forecast.matchers import Inferred, infer_matchers
from webhook.forecast.validation import (
    VIRT_API,
    DryRun,
    FieldError,
    Schemas,
    applied,
    is_of_kubevirt,
    merge_patch,
    schemas_of,
)
from webhook.k8s.documents import Document, format_path
from webhook.kubevirt.releases.fields import VIRTUAL_MACHINE
from webhook.kubevirt.releases.release import NEWEST
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.templates import KIND, MissingParametersError
from webhook.policies.instancetypes.reasons import MISSING
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.scheduling.reasons import SCHEDULER_HEALTH_UNKNOWN, UNSET
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation
from webhook.settings.model import Settings

_SECONDS: Final = 10.0
_DECISIONS: Final = {
    common.INVALID_OBJECT: "invalid",
    common.DRY_RUN_DENIED: "denied",
    common.NAMESPACE_UNREADABLE: "error",
}
_AT_START: Final = (
    "not checked: what policies do when a VM starts, such as defaults and headroom; of a VM that exists,"
    " `kubevirt-webhook explain vm` shows it"
)
_WARNED: Final[Mapping[str, misplaced.Owned]] = {VIRTUAL_MACHINE: "VM", "VirtualMachineInstance": "VMI"}
DRY_RUN_DONE: Final = "checked by the cluster itself in a dry run, in which nothing was stored,"
_PROCESS: Final = (
    "not evaluated: the objects of an OpenShift Template are reviewed once they are processed: "
    "oc process -f FILE --local | kubevirt-webhook review -"
)
# Of metadata, what a manifest that is applied again does not have.
_SET_BY_SERVER: Final = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"})


@dataclass(eq=False)
class Evaluator:
    """Evaluates documents over a cluster.

    Attributes:
        sending: how manifests are sent.
        schemas: what objects of KubeVirt are checked against; None: they are not.
        dry_run: asks the cluster, too, what it says of objects of KubeVirt.
        objects: whether results hold the patched object.
        waits: whether evaluations wait for answers of a cluster.
    """

    cluster: Cluster
    settings: Settings
    sending: requests.Sending
    schemas: Schemas | None = None
    _: KW_ONLY
    dry_run: DryRun | None = None
    objects: bool = True

    def __post_init__(self) -> None:
        self.waits = not self.cluster.answers_at_once
        self._reviewer = CertainReviewer(self.cluster, self.settings)

    async def evaluate(self, document: Document) -> Result:
        """The result for an AdmissionReview, or for a manifest as if it were created; an `InputError` for others."""
        value: dict[str, Any] = document.value
        checked = self.schemas.check(value) if self.schemas else None
        errors, existing = checked.errors if checked else [], None
        said: tuple[str, ...] = ()
        against = checked.against if checked else ""
        if not errors and self.dry_run and is_of_kubevirt(str(value.get("apiVersion") or "").rpartition("/")[0]):
            try:
                errors, existing, said = await self.dry_run.ask(value, self.sending.effective_namespace)
            except InputError as error:
                raise InputError(error.what, document.where(), error.fix) from None
            against = f"{DRY_RUN_DONE} after it was {against}" if against else DRY_RUN_DONE
        result = self._invalid(document, errors) if errors else await self._evaluate_valid(document, existing)
        if existing and errors:
            result.operation = "UPDATE"
        result.warnings += [each for each in said if not any(_says(own, each) for own in result.warnings)]
        result.checked = result.checked or against
        result.unchecked = [*(checked.unchecked if checked else ()), *result.unchecked]
        return result

    async def _evaluate_valid(self, document: Document, existing: dict[str, Any] | None) -> Result:
        value: dict[str, Any] = document.value
        shown = value if self.objects else None
        if isinstance(value.get("apiVersion"), str) and value.get("kind") and not requests.is_reviewed(value):
            if requests.holds_reviewed(value):
                return self._unsent(document, decision="error", message=_PROCESS, manifest=shown)
            message = _not_called("CREATE", str(value["kind"]))
            return self._unsent(document, matched=False, message=message, object=shown)
        deadline = asyncio.get_running_loop().time() + _SECONDS
        try:
            review = await requests.to_review_request(document, self.cluster, deadline, self.sending)
        except MissingParametersError as error:
            return self._unsent(document, decision="error", message=f"not evaluated: {error}", manifest=shown)
        if missing := await self._missing_namespace(review, document, deadline):
            return self._invalid(document, [missing])
        # Of what pools and replica sets make, their own schemas tell.
        made = self.schemas.check(review.request["object"]) if self.schemas and value["kind"] == KIND else None
        if made and made.errors:
            result = self._invalid(document, self._of_reviewed(document, made.errors))
            result.checked, result.unchecked = made.against, list(made.unchecked)
            return result
        if existing and not review.origin:
            review.request.update(
                operation="UPDATE", oldObject=existing, object=merge_patch(existing, applied(value, existing))
            )
        result = await self._send(review, deadline, document)
        result.warnings += _misplaced(review.request)
        if result.kind in _WARNED:
            result.unchecked.append(_AT_START)
        if made:
            result.checked, result.unchecked = made.against, [*made.unchecked, *result.unchecked]
        if isinstance(result.object, dict) and existing:
            metadata = {key: each for key, each in result.object["metadata"].items() if key not in _SET_BY_SERVER}
            result.object = {**result.object, "metadata": metadata}
            result.object.pop("status", None)
        if review.origin:
            result.manifest = self._in_namespace(shown)
        return result

    async def _missing_namespace(
        self, review: requests.ReviewRequest, document: Document, deadline: float
    ) -> FieldError | None:
        """That the namespace of a request does not exist; once, rather than for each policy."""
        namespace = review.request.get("namespace")
        if _is_of_namespace(review.request):
            return None
        if not namespace or await self.cluster.read(NamespaceKey(namespace, uncached=True), deadline) is not None:
            return None
        is_review = document.value.get("kind") == "AdmissionReview"
        named = is_review or _metadata(document.value).get("namespace")
        fix = "create it" if self.waits else "add it to the cluster's objects"
        other = "" if named or review.origin else ", or name another one with --namespace"
        text = f"namespace {namespace} does not exist, so nothing is known of its policies; {fix}{other}"
        return FieldError(("request" if is_review else "metadata", "namespace"), text, common.NAMESPACE_UNREADABLE)

    async def _send(self, review: requests.ReviewRequest, deadline: float, document: Document) -> Result:
        request = review.request
        result = Result(file=review.file, line=review.line, origin=review.origin, **_described(request))
        endpoints = await requests.endpoints(request, self.cluster, self.settings, deadline)
        inferred: Inferred | None = None
        sent = request.get("object")
        for position, endpoint in enumerate(endpoints):
            if endpoint.verb == "validate":
                # KubeVirt's own webhook comes in between. What it infers is no change of kubevirt-webhook's.
                inferred = inferred or await self._infer(request)
                if inferred.denial:
                    break
            obj = inferred.vm if inferred else request.get("object")
            if endpoint.verb == "validate" and obj is not sent and request.get("operation") == "CREATE":
                obj = _with_record(obj, sent)
            evaluation = await self._call(endpoint, review, obj, deadline)
            is_read = self.objects or position + 1 < len(endpoints)
            self._take(endpoint, evaluation, request, result, is_read=is_read)
            # The API server asks all that validate at once, and answers with the denial of one.
            if result.message is not None and endpoint.verb != "validate":
                break
        # KubeVirt's webhook looks at VMs wherever they are; one that kubevirt-webhook denies doesn't get there.
        if inferred is None and result.message is None:
            inferred = await self._infer(request)
        if inferred and inferred.denial:
            field = tuple(inferred.field.split(".")) if inferred.field else ("spec",)
            denied = FieldError(field, inferred.denial, by=VIRT_API)
            return self._invalid(document, self._of_reviewed(document, [denied]))
        if inferred and inferred.unknown:
            result.unchecked.append(f"not checked: {inferred.unknown}")
        if MISSING in {reason["code"] for each in result.judgements for reason in each["reasons"]}:
            namespace = str(request.get("namespace") or "")
            result.near = await near.question(request["object"], namespace, self.cluster, deadline)
        if not result.judgements:
            result.matched = False
            result.message = _not_called(result.operation, result.kind or "this")
        if self.objects:
            result.object = self._in_namespace(request.get("object"))
        return result

    async def _call(self, endpoint: Endpoint, review: requests.ReviewRequest, obj: Any, deadline: float) -> Evaluation:
        """What an endpoint says of a request with this object."""
        request = review.request
        changed = obj is not request.get("object")
        body = msgspec.json.encode({**review.review, "request": {**request, "object": obj}}) if changed else review.body
        try:
            return await self._reviewer.evaluate(endpoint, body, deadline)
        except InputError as error:
            raise InputError(error.what, f"{review.source}: {error.where}", error.fix) from None

    def _take(
        self, endpoint: Endpoint, evaluation: Evaluation, request: dict[str, Any], result: Result, *, is_read: bool
    ) -> None:
        """Add what an endpoint says to the result, and make its changes in the request's object if that is read."""
        judgement = {"policy": endpoint.policy, "endpoint": endpoint.path, "mode": evaluation.mode}
        reasons = [_as_read_here(reason) for reason in evaluation.decision.reasons]
        if self._has_decided(request, result):
            reasons = [_as_decided_there(reason) for reason in reasons]
        judgement |= {"decision": evaluation.label, "reasons": msgspec.to_builtins(reasons)}
        result.judgements.append(judgement | {"changes": msgspec.to_builtins(evaluation.decision.changes)})
        label = evaluation.label
        if (label == "error" or is_uncertain(reasons)) and self._has_decided(request, result):
            # What could not be read here says nothing of the request: the cluster has taken it.
            result.decision = max(result.decision, "allowed", key=WEIGHT.index)
        else:
            # Like kubectl, which prints a warning once. The server warns of no health that it alone knows.
            sent = [each for each in evaluation.outcome.warnings if not each.endswith(f"[{SCHEDULER_HEALTH_UNKNOWN}]")]
            result.warnings.extend(each for each in sent if each not in result.warnings)
            result.decision = max(result.decision, label, key=WEIGHT.index)
            if evaluation.outcome.denial:
                result.message = result.message or evaluation.outcome.denial.message
                return
        operations = msgspec.json.decode(evaluation.patch) if evaluation.patch else []
        result.patch.extend(operations)
        # What is not read is not made: applying costs more than the evaluation.
        if operations and is_read:
            # A copy through the encoding takes a fifth of what `copy.deepcopy` does.
            copy = msgspec.json.decode(msgspec.json.encode(request["object"]))
            request["object"] = jsonpatch.apply_patch(copy, operations, in_place=True)

    def _has_decided(self, request: dict[str, Any], result: Result) -> bool:
        """Whether the cluster itself has said in a dry run what its policies do with the request."""
        group = str((request.get("kind") or {}).get("group") or "")
        return self.dry_run is not None and result.origin is None and is_of_kubevirt(group)

    async def _infer(self, request: dict[str, Any]) -> Inferred:
        """The object of a request as it is when it is validated: the matchers of VMs are inferred by then."""
        vm, release = request.get("object"), release_in(self.cluster, self.settings)
        is_vm = _described(request)["kind"] == VIRTUAL_MACHINE and not request.get("subResource")
        if not is_vm or not isinstance(vm, dict) or not release.is_supported:
            return Inferred(vm)
        namespace = str(request.get("namespace") or "")
        return await infer_matchers(vm, request.get("oldObject"), self.cluster, namespace, rules_of(release))

    def _of_reviewed(self, document: Document, errors: Sequence[FieldError]) -> list[FieldError]:
        """Errors in the object that is reviewed, as errors in the document, which may only make it."""
        value, path = document.value, requests.path_of_reviewed(document.value)
        makes = path and value["kind"] != "AdmissionReview"
        prefix = "its VMs are denied: " if makes else ""
        return [each._replace(path=(*path, *each.path), text=f"{prefix}{each.text}") for each in errors]

    def _invalid(self, document: Document, errors: Sequence[FieldError]) -> Result:
        """The result for an object that is not evaluated because of what stands in it, whatever the policies say."""
        decision = _DECISIONS[errors[0].code]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        who = "" if decision == "error" else f"{errors[0].by} denies the object: "
        entries = [
            {"line": document.line_of(each.path), "path": format_path(each.path), "text": each.text, "code": each.code}
            for each in errors
        ]
        message, manifest = f"{who}{errors[0].text}{more}", document.value if self.objects else None
        return self._unsent(document, decision=decision, findings=entries, message=message, manifest=manifest)

    def _unsent(self, document: Document, **fields: Any) -> Result:
        """The result for an object that is not sent."""
        value = document.value
        namespace = str(_metadata(value).get("namespace") or self.sending.effective_namespace)
        if self._is_namespaced(value) is False:
            namespace = ""
        fields |= {key: self._in_namespace(fields[key]) for key in ("object", "manifest") if key in fields}
        created = {"operation": "CREATE", "kind": {"kind": str(value["kind"])}, "namespace": namespace, "object": value}
        request = value["request"] if value["kind"] == "AdmissionReview" else created
        return Result(file=document.file, line=document.line, **_described(request), **fields)

    def _is_namespaced(self, value: dict[str, Any]) -> bool | None:
        """Whether an object is in a namespace; None: its kind is unknown."""
        by_schema = (self.schemas or schemas_of(NEWEST)).is_namespaced(value)
        kind = KINDS.get(str(value.get("kind")))
        if by_schema is None and kind and kind.group == str(value.get("apiVersion")).rpartition("/")[0]:
            return kind.namespaced
        return by_schema

    def _in_namespace(self, obj: Any) -> Any:
        """An object with the namespace that the user names, as kubectl sends it; others come back unchanged.

        Whatever the output is piped into would take a namespace of its own for it.
        """
        namespace = self.sending.namespace
        if (
            not namespace
            or not isinstance(obj, dict)
            or _metadata(obj).get("namespace")
            or not self._is_namespaced(obj)
        ):
            return obj
        return {**obj, "metadata": {**_metadata(obj), "namespace": namespace}}


def _as_decided_there(reason: Reason) -> Reason:
    """A reason of a request that the cluster has judged in a dry run, by what may not be read here."""
    if reason.code not in (common.SETTINGS_UNREADABLE, scheduling.SCHEDULER_HEALTH_UNKNOWN):
        return reason
    return Reason(reason.code, f"{reason.text}; the cluster itself has evaluated it in the dry run")


def _as_read_here(reason: Reason) -> Reason:
    """A reason as a review gives it: of the health of a scheduler the server knows what its user may not read."""
    if reason.code != SCHEDULER_HEALTH_UNKNOWN:
        return reason
    unknown = reason.text.partition(f"; {UNSET}")[0]
    return Reason(reason.code, f"not evaluated: {unknown}; while it is available, kubevirt-webhook sets schedulerName")


def _with_record(obj: Any, sent: Any) -> Any:
    """A new object that webhooks have changed, with the API server's record of what its sender wrote."""
    if not isinstance(obj, dict) or _metadata(obj).get("managedFields"):
        return obj
    entry = {"manager": "review", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": _fields(sent)}
    return {**obj, "metadata": {**_metadata(obj), "managedFields": [entry]}}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of plain JSON as ``fieldsV1`` has them, a list as a whole."""
    return {f"f:{name}": _fields(part) for name, part in value.items()} if isinstance(value, dict) else {}


def _metadata(obj: Any) -> dict[str, Any]:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _is_of_namespace(request: dict[str, Any]) -> bool:
    written = request.get("object")
    return isinstance(written, dict) and requests.is_namespace(written)


def _described(request: dict[str, Any]) -> dict[str, Any]:
    """What a result says of a request."""
    metadata = _metadata(request.get("object"))
    return {
        "uid": request.get("uid", ""),
        "operation": request.get("operation", ""),
        "kind": (request.get("kind") or {}).get("kind", ""),
        # A Namespace is in none, though its requests name it.
        "namespace": "" if _is_of_namespace(request) else request.get("namespace", ""),
        "name": str(request.get("name") or metadata.get("name") or metadata.get("generateName") or ""),
        "user": (request.get("userInfo") or {}).get("username", ""),
    }


def _says(own: str, sent: str) -> bool:
    """Whether a warning says what the cluster has sent, which names the policy of the API server, and may be cut."""
    begin, cut, _ = sent.partition("…")
    return own.startswith(begin) if cut else sent.endswith(own)


def _misplaced(request: dict[str, Any]) -> list[str]:
    """What the API server warns of in a VM or a VMI, without a webhook."""
    obj, old = request.get("object"), request.get("oldObject")
    kind = _WARNED.get(_described(request)["kind"])
    if kind is None or request.get("subResource") or not isinstance(obj, dict):
        return []
    return misplaced.warnings(obj, kind, old if isinstance(old, dict) else None)


def _not_called(operation: str, kind: str) -> str:
    return f"the API server does not call kubevirt-webhook for {operation} of {kind}"
