"""`kubevirt-webhook review`: the server's evaluation, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import jsonpatch
import msgspec

from webhook.admission.audit import NoAudit
from webhook.admission.patch import segments
from webhook.admission.redaction import redact_at
from webhook.cli import given, requests, write
from webhook.cli.kubevirt_version import kubevirt_version, parse_release
from webhook.cli.options import CLUSTER_FROM, SHOW_SECRETS, config_option, kubeconfig_option, output_option
from webhook.cli.show import print_results
from webhook.cli.yamltext import dump
from webhook.cluster.selection import open_cluster
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.review.reviewer import NullObserver, Reviewer
from webhook.settings.file import default_settings, load
from webhook.settings.snapshot import Settings


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@CLUSTER_FROM
@kubeconfig_option()
@kubevirt_version
@config_option("the built-in defaults")
@click.option("--as", "user", metavar="USER", help="User that sends the manifests.  [default: an admin]")
@click.option(
    "-n", "--namespace", metavar="NAMESPACE", help="Namespace of manifests that name none.  [default: default]"
)
@output_option("text", "json", "yaml", "patch")
@SHOW_SECRETS
def review(**options: Any) -> None:
    """Evaluate AdmissionReviews, or manifests as if they were created. FILE can be - for standard input.

    Output "text" shows decisions, reasons and changes; "json" also the patched object; "yaml" the patched objects;
    "patch" the JSON patches. Exit status 1 if a request was denied, 2 on invalid input.
    """
    _run(_Options(**options))


@dataclass(frozen=True)
class _Options:
    """The options of the command."""

    files: tuple[str, ...]
    cluster_from: Path | None
    kubeconfig: Path | None
    kubevirt_version: str | None
    config_file: Path | None
    user: str | None
    namespace: str | None
    output: str
    show_secrets: bool


def _run(options: _Options) -> None:
    results = asyncio.run(_evaluate_all(options))
    if not options.show_secrets:
        for result in results:
            if _redact(result) & _PRINTED[options.output]:
                what = "secrets are redacted, do not apply this output; use --show-secrets to print them"
                write.line(f"{result['source']}: {what}", err=True)
    _print(results, options.output)
    if any(result["decision"] == "denied" for result in results):
        raise SystemExit(1)


async def _evaluate_all(options: _Options) -> list[dict[str, Any]]:
    settings = load(options.config_file) if options.config_file else default_settings()
    if release := parse_release(options.kubevirt_version):
        settings = msgspec.structs.replace(settings, kubevirt_version=str(release))
    documents = requests.read(options.files, given.standard_input() if "-" in options.files else None)
    async with open_cluster(options.cluster_from, options.kubeconfig, settings) as cluster:
        reviewer = Reviewer(cluster, lambda: settings, NoAudit(), NullObserver())
        results = []
        for document in documents:
            deadline = asyncio.get_running_loop().time() + 10
            asked = await requests.to_review_request(document, cluster, options.user, deadline, options.namespace)
            results.append(await _evaluate(asked, reviewer, cluster, settings, deadline))
        return results


async def _evaluate(
    asked: requests.ReviewRequest, reviewer: Reviewer, cluster: Cluster, settings: Settings, deadline: float
) -> dict[str, Any]:
    """Send a review to all endpoints that the API server would call, each with the patches of those before."""
    request = asked.request
    kind = request.get("kind") or {}
    result: dict[str, Any] = {
        "source": asked.source,
        "uid": request.get("uid", ""),
        "operation": request.get("operation", ""),
        "kind": kind.get("kind", ""),
        "namespace": request.get("namespace", ""),
        "name": _name(request),
        "user": (request.get("userInfo") or {}).get("username", ""),
        "decision": "skipped",
        "message": None,
        "judgements": [],
        "warnings": [],
        "patch": [],
        "object": request.get("object"),
    }
    for endpoint in await requests.endpoints(request, cluster, settings, deadline):
        try:
            verdict = await reviewer.evaluate(endpoint, asked.body, deadline)
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
        result["judgements"].append(evaluation)
        result["warnings"].extend(verdict.outcome.warnings)
        result["decision"] = _weightier(result["decision"], verdict.label)
        if verdict.outcome.denial:
            result["message"] = verdict.outcome.denial.message
            return result
        if verdict.patch:
            operations = json.loads(verdict.patch)
            result["patch"].extend(operations)
            request["object"] = jsonpatch.apply_patch(request["object"], operations)
            result["object"] = request["object"]
    if not result["judgements"]:
        result["message"] = (
            f"the API server does not call kubevirt-webhook for {result['operation']} of {result['kind'] or 'this'}"
        )
    return result


# The parts of a result that can be applied, by the kind of output that holds them.
_PRINTED: Final[dict[str, set[str]]] = {
    "text": set(),
    "json": {"object", "patch"},
    "yaml": {"object"},
    "patch": {"patch"},
}


def _redact(result: dict[str, Any]) -> set[str]:
    """Redact the secrets of a result, and return the parts that had any."""
    found = set()

    def hide(part: str, path: Sequence[str], holder: dict[str, Any], key: str) -> None:
        shown = redact_at(path, holder[key], bounded=False)
        if shown is not holder[key]:
            holder[key] = shown
            found.add(part)

    hide("object", (), result, "object")
    for change in (change for evaluation in result["judgements"] for change in evaluation["changes"]):
        for side in ("old", "new"):
            hide("changes", change["path"], change, side)
    for operation in result["patch"]:
        if "value" in operation:
            hide("patch", segments(operation["path"]), operation, "value")
    return found


# The decisions of several endpoints about one request, the lightest first.
WEIGHT: Final = ("skipped", "allowed", "would-patch", "would-deny", "patched", "error", "denied")


def _weightier(one: str, other: str) -> str:
    return max(one, other, key=WEIGHT.index)


def _name(request: dict[str, Any]) -> str:
    metadata = (request.get("object") or {}).get("metadata") if isinstance(request.get("object"), dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    return str(request.get("name") or metadata.get("name") or metadata.get("generateName") or "")


def _print(results: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        write.data(json.dumps(results if len(results) != 1 else results[0], indent=2))
    elif output == "patch":
        patches = [result["patch"] for result in results]
        write.data(json.dumps(patches if len(patches) != 1 else patches[0], indent=2))
    elif output == "yaml":
        objects = [result["object"] for result in results if result["object"] is not None]
        write.data(dump(objects))
    else:
        print_results(results)
