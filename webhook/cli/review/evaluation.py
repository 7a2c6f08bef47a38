"""The evaluation of one document: every endpoint that the API server would call, each with the patches before it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import jsonpatch
import msgspec

from webhook.admission.audit import NoAudit
from webhook.cli.review.result import Result, weightier
from webhook.cluster.files import FilesCluster
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.forecast import requests
from webhook.k8s.yaml_documents import Document
from webhook.kubevirt.templates import MissingParametersError
from webhook.review.reviewer import Evaluation, NullObserver, Reviewer
from webhook.settings.snapshot import Settings

_SECONDS: Final = 10.0


class Evaluator:
    """Evaluates documents over a cluster.

    Args:
        cluster: the source of facts.
        settings: the settings in effect.
        sending: how manifests are sent.
        objects: whether results hold the patched object.

    Attributes:
        waits: whether evaluations wait for answers of a cluster.
    """

    def __init__(
        self, cluster: Cluster, settings: Settings, sending: requests.Sending, *, objects: bool = True
    ) -> None:
        self.waits: Final = not isinstance(cluster, FilesCluster)
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._sending: Final = sending
        self._objects: Final = objects
        self._reviewer: Final = Reviewer(cluster, lambda: settings, NoAudit(), NullObserver())

    async def evaluate(self, document: Document) -> Result:
        """The result for an AdmissionReview, or for a manifest as if it were created.

        Raises:
            InputError: the document is neither, or cannot be an object of its kind.
        """
        value: dict[str, Any] = document.value
        if isinstance(value.get("apiVersion"), str) and value.get("kind") and not requests.is_reviewed(value):
            return self._unmatched_result(document)
        deadline = asyncio.get_running_loop().time() + _SECONDS
        try:
            asked = await requests.to_review_request(document, self._cluster, deadline, self._sending)
        except MissingParametersError as error:
            return self._not_made(document, error)
        result = await self._send(asked, deadline)
        if asked.origin and self._objects:
            result.given = value
        return result

    async def _send(self, asked: requests.ReviewRequest, deadline: float) -> Result:
        request = asked.request
        kind = request.get("kind") or {}
        result = Result(
            file=asked.file,
            line=asked.line,
            uid=request.get("uid", ""),
            operation=request.get("operation", ""),
            kind=kind.get("kind", ""),
            namespace=request.get("namespace", ""),
            name=_name(request),
            user=(request.get("userInfo") or {}).get("username", ""),
            origin=asked.origin,
        )
        endpoints = await requests.endpoints(request, self._cluster, self._settings, deadline)
        for position, endpoint in enumerate(endpoints):
            try:
                verdict = await self._reviewer.evaluate(endpoint, asked.body, deadline)
            except InputError as error:
                raise InputError(error.what, f"{asked.source}: {error.where}", error.fix) from None
            evaluation = {
                "policy": endpoint.policy,
                "endpoint": endpoint.path,
                "mode": verdict.mode,
                "decision": verdict.label,
                "reasons": msgspec.to_builtins(verdict.decision.reasons),
                "changes": msgspec.to_builtins(verdict.decision.changes),
            }
            result.judgements.append(evaluation)
            result.warnings.extend(verdict.outcome.warnings)
            result.decision = weightier(result.decision, verdict.label)
            if verdict.outcome.denial:
                result.message = verdict.outcome.denial.message
                break
            self._apply(verdict, request, result, last=position + 1 == len(endpoints))
        if not result.judgements:
            result.matched = False
            result.message = _not_called(result)
        if self._objects:
            result.object = request.get("object")
        return result

    def _apply(self, verdict: Evaluation, request: dict[str, Any], result: Result, *, last: bool) -> None:
        if not verdict.patch:
            return
        operations = msgspec.json.decode(verdict.patch)
        result.patch.extend(operations)
        # What is not read is not made: applying costs more than the evaluation.
        if self._objects or not last:
            request["object"] = jsonpatch.apply_patch(_copy_json(request["object"]), operations, in_place=True)

    def _unmatched_result(self, document: Document) -> Result:
        """The result for a kind that no endpoint is for."""
        result = _result_of(document, self._sending)
        result.matched = False
        result.message = _not_called(result)
        result.object = document.value if self._objects else None
        return result

    def _not_made(self, document: Document, error: MissingParametersError) -> Result:
        """The result for a template that makes no VM."""
        result = _result_of(document, self._sending)
        result.decision = "error"
        result.message = f"not evaluated: {error}"
        result.given = document.value if self._objects else None
        return result


def _result_of(document: Document, sending: requests.Sending) -> Result:
    """The result for an object that is not sent."""
    metadata = document.value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return Result(
        file=document.file,
        line=document.line,
        operation="CREATE",
        kind=str(document.value["kind"]),
        namespace=str(metadata.get("namespace") or sending.namespace or "default"),
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
    )


def _not_called(result: Result) -> str:
    return f"the API server does not call kubevirt-webhook for {result.operation} of {result.kind or 'this'}"


def _copy_json(value: Any) -> Any:
    """A copy of plain JSON; through its encoding, which takes a fifth of what `copy.deepcopy` does."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _name(request: dict[str, Any]) -> str:
    obj = request.get("object")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    return str(request.get("name") or metadata.get("name") or metadata.get("generateName") or "")
