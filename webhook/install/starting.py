"""Reads why the pods of a Deployment do not start. What cannot be read is left out, since it only explains."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from webhook.install.plan import path
from webhook.install.registration import Manifest
from webhook.k8s.client.api import ApiConnectionError, Requests
from webhook.k8s.startup import PodWarning, StartingPod, StartProblem, explain_by_events, worst_problem

_SECONDS: Final = 30.0
# Pods of the Deployment, and Events of one of them, that are looked at.
_MOST: Final = "100"
_T = TypeVar("_T")


class _List(msgspec.Struct):
    items: list[Any] | None = None


async def start_problem(api: Requests, manifest: Manifest) -> StartProblem | None:
    """Why a Deployment's pods do not start; None: they have, or it is unknown.

    Args:
        api: the connection to the API server.
        manifest: the Deployment.
    """
    namespace, labels = manifest["metadata"]["namespace"], manifest["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    problem = worst_problem(await _read(api, "Pod", namespace, {"labelSelector": selector}, StartingPod))
    if problem is None:
        return None
    about = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={problem.pod},type=Warning"}
    return explain_by_events(problem, await _read(api, "Event", namespace, about, PodWarning))


async def _read(api: Requests, kind: str, namespace: str, query: dict[str, str], view: type[_T]) -> list[_T]:
    where = {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": ""}}
    try:
        status, body = await api.request(
            "GET", path(where, collection=True), {**query, "limit": _MOST}, seconds=_SECONDS
        )
        items = (msgspec.json.decode(body, type=_List).items or []) if status == 200 else []
        return msgspec.convert(items, list[view])  # type: ignore[valid-type]
    except (ApiConnectionError, msgspec.MsgspecError):
        return []
