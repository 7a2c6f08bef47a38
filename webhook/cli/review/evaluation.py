"""The evaluation of one document: every endpoint that the API server would call, each with the patches before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec

from webhook.admission.audit import NoAudit
from webhook.admission.reasons import common
from webhook.cli.review.result import WEIGHT, Result
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import SECONDS, listed
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import KubeVirtKey, NamespaceKey
from webhook.forecast import requests
from webhook.forecast.validation import DryRun, Finding, Schemas, is_of_kubevirt, merge_patch, schemas_of
from webhook.k8s.client.api import READ_ERRORS, Forbidden, Transport, list_failure
from webhook.k8s.types.meta import Unstructured
from webhook.k8s.yaml_documents import Document, format_path, objects_in, read_documents
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.releases.release import NEWEST
from webhook.kubevirt.templates import MissingParametersError
from webhook.review.reviewer import Reviewer
from webhook.settings.model import Settings

_SECONDS: Final = 10.0
_DECISIONS: Final = {
    common.INVALID_OBJECT: "invalid",
    common.DRY_RUN_DENIED: "denied",
    common.NAMESPACE_UNREADABLE: "error",
}
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
        self.waits = not isinstance(self.cluster, FilesCluster)
        self._reviewer = Reviewer(self.cluster, lambda: self.settings, NoAudit())

    async def evaluate(self, document: Document) -> Result:
        """The result for an AdmissionReview, or for a manifest as if it were created; an `InputError` for others."""
        value: dict[str, Any] = document.value
        findings = self.schemas.findings(value) if self.schemas else None
        checked, existing = findings is not None, None
        if not findings and self.dry_run and is_of_kubevirt(str(value.get("apiVersion") or "").rpartition("/")[0]):
            try:
                findings, existing = await self.dry_run.ask(value, self.sending.effective_namespace)
            except InputError as error:
                raise InputError(error.what, document.where(), error.fix) from None
            checked = True
        result = self._invalid(document, findings) if findings else await self._evaluate_valid(document, existing)
        result.checked = checked
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
        if existing and not review.origin:
            review.request.update(operation="UPDATE", oldObject=existing, object=merge_patch(existing, value))
        result = await self._send(review, deadline)
        if isinstance(result.object, dict) and existing:
            metadata = {key: each for key, each in result.object["metadata"].items() if key not in _SET_BY_SERVER}
            result.object = {**result.object, "metadata": metadata}
            result.object.pop("status", None)
        if review.origin:
            result.manifest = shown
        return result

    async def _missing_namespace(
        self, review: requests.ReviewRequest, document: Document, deadline: float
    ) -> Finding | None:
        """That the namespace of a request does not exist; once, rather than for each policy."""
        namespace = review.request.get("namespace")
        if not namespace or await self.cluster.read(NamespaceKey(namespace, fresh=True), deadline) is not None:
            return None
        is_review = document.value.get("kind") == "AdmissionReview"
        named = is_review or _metadata(document.value).get("namespace")
        fix = "create it" if self.waits else "add it to the cluster's objects"
        other = "" if named or review.origin else ", or name another one with --namespace"
        text = f"namespace {namespace} does not exist, so nothing is known of its policies; {fix}{other}"
        return Finding(("request" if is_review else "metadata", "namespace"), text, common.NAMESPACE_UNREADABLE)

    async def _send(self, review: requests.ReviewRequest, deadline: float) -> Result:
        request = review.request
        result = Result(file=review.file, line=review.line, origin=review.origin, **_described(request))
        endpoints = await requests.endpoints(request, self.cluster, self.settings, deadline)
        for position, endpoint in enumerate(endpoints):
            try:
                verdict = await self._reviewer.evaluate(endpoint, review.body, deadline)
            except InputError as error:
                raise InputError(error.what, f"{review.source}: {error.where}", error.fix) from None
            evaluation = {"policy": endpoint.policy, "endpoint": endpoint.path, "mode": verdict.mode}
            evaluation |= {"decision": verdict.label, "reasons": msgspec.to_builtins(verdict.decision.reasons)}
            result.judgements.append(evaluation | {"changes": msgspec.to_builtins(verdict.decision.changes)})
            result.warnings.extend(verdict.outcome.warnings)
            result.decision = max(result.decision, verdict.label, key=WEIGHT.index)
            if verdict.outcome.denial:
                result.message = verdict.outcome.denial.message
                break
            operations = msgspec.json.decode(verdict.patch) if verdict.patch else []
            result.patch.extend(operations)
            # What is not read is not made: applying costs more than the evaluation.
            if operations and (self.objects or position + 1 < len(endpoints)):
                # A copy through the encoding takes a fifth of what `copy.deepcopy` does.
                copy = msgspec.json.decode(msgspec.json.encode(request["object"]))
                request["object"] = jsonpatch.apply_patch(copy, operations, in_place=True)
        if not result.judgements:
            result.matched = False
            result.message = _not_called(result.operation, result.kind or "this")
        if self.objects:
            result.object = request.get("object")
        return result

    def _invalid(self, document: Document, findings: Sequence[Finding]) -> Result:
        """The result for an object that is not evaluated because of what stands in it, whatever the policies say."""
        decision = _DECISIONS[findings[0].code]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        who = "" if decision == "error" else "the API server denies the object: "
        entries = [
            {"line": document.line_of(each.path), "path": format_path(each.path), "text": each.text, "code": each.code}
            for each in findings
        ]
        message, manifest = f"{who}{findings[0].text}{more}", document.value if self.objects else None
        return self._unsent(document, decision=decision, findings=entries, message=message, manifest=manifest)

    def _unsent(self, document: Document, **fields: Any) -> Result:
        """The result for an object that is not sent."""
        value = document.value
        namespace = str(_metadata(value).get("namespace") or self.sending.effective_namespace)
        created = {"operation": "CREATE", "kind": {"kind": str(value["kind"])}, "namespace": namespace, "object": value}
        request = value["request"] if value["kind"] == "AdmissionReview" else created
        return Result(file=document.file, line=document.line, **_described(request), **fields)


def _metadata(obj: Any) -> dict[str, Any]:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _described(request: dict[str, Any]) -> dict[str, Any]:
    """What a result says of a request."""
    metadata = _metadata(request.get("object"))
    return {
        "uid": request.get("uid", ""),
        "operation": request.get("operation", ""),
        "kind": (request.get("kind") or {}).get("kind", ""),
        "namespace": request.get("namespace", ""),
        "name": str(request.get("name") or metadata.get("name") or metadata.get("generateName") or ""),
        "user": (request.get("userInfo") or {}).get("username", ""),
    }


def _not_called(operation: str, kind: str) -> str:
    return f"the API server does not call kubevirt-webhook for {operation} of {kind}"


async def fetch_definitions(transport: Transport) -> list[dict[str, Any]]:
    """KubeVirt's definitions; an `InputError` where they cannot be read. All of a cluster can have 100 MB."""
    try:
        async with aclosing(listed(transport, DEFINITIONS.decoded_as(Unstructured), seconds=SECONDS)) as definitions:
            specs = [one.spec async for one in definitions if is_of_kubevirt(str((one.spec or {}).get("group") or ""))]
            return [{"spec": spec} for spec in specs]
    except READ_ERRORS as error:
        # A user without the permission to list them gets what the program knows; the line on standard error says so.
        if not isinstance(why := list_failure(error, DEFINITIONS, "", SECONDS), Forbidden):
            fix = "run the command again, or name a file of them with --crds"
            raise InputError(why.why, DEFINITIONS.plural, fix) from None
    return []


def find_schemas(cluster: Cluster, crds: Path | None, definitions: Sequence[dict[str, Any]], origin: str) -> Schemas:
    """What objects of KubeVirt are checked against: definitions, else those of the release whose rules apply.

    Definitions of a file, ``crds``, come before those of the cluster, which are from ``origin``; an `InputError` where
    the file has none of KubeVirt.
    """
    if crds:
        origin = f"the CustomResourceDefinitions in {crds}"
        documents = (each.value for document in read_documents(crds) for each in objects_in(document))
        definitions = [each for each in documents if isinstance(each, dict) and each.get("kind") == DEFINITIONS.kind]
    if schemas := Schemas.of_definitions(definitions, origin):
        return schemas
    if crds:
        fix = "use for example the output of: kubectl get crd -o yaml"
        raise InputError("holds no CustomResourceDefinition of KubeVirt", str(crds), fix)
    install = cluster.peek(KubeVirtKey())
    configuration = install.configuration if isinstance(install, KubeVirtInstall) else None
    return schemas_of(configuration.rules.release if isinstance(configuration, ClusterConfig) else NEWEST)
