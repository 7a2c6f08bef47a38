"""Looks at where VMs run, why they concentrate on some nodes, and the least change that would spread them."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from webhook import names
from webhook.doctor.spread import causes, census, cures
from webhook.doctor.spread.causes import CHECK, ApiServerVersion
from webhook.doctor.spread.cures import Outlook
from webhook.doctor.spread.estimate import SpreadEstimate
from webhook.doctor.spread.inventory import Inventory, take
from webhook.doctor.support.finding import Finding, Measurement, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.client.resources import NODES_WITH_IMAGES, PODS
from webhook.k8s.views import Namespace
from webhook.text import pluralize

_SPREAD_BY_HOST: Final = ("hostname", "both")


async def check(installation: Installation) -> list[Finding]:
    """Look at nodes and the pods on them."""
    nodes = await installation.reader.all(NODES_WITH_IMAGES)
    pods = await installation.reader.all(PODS)
    namespaces = await installation.namespaces()
    for read in (nodes, pods, namespaces):
        if isinstance(read, Unavailable):
            return [unreadable(CHECK, "VMs", read)]
    assert not isinstance(nodes, Unavailable)
    assert not isinstance(pods, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    wanted = {space.meta.name or "": _expected_constraints(installation, space) for space in namespaces}
    inventory = take(nodes, pods, lambda name: wanted.get(name, names.OFF) in _SPREAD_BY_HOST)
    if not inventory.open:
        what = (
            f"0/{pluralize(len(nodes), 'node')} accept VMs: labeled kubevirt.io/schedulable=true, not cordoned, "
            "and without a NoSchedule or NoExecute taint"
        )
        return [Finding(CHECK, "no-nodes", "nodes", "ok", what)]
    version = await _version(installation)
    findings: list[Finding] = [*causes.zones(inventory, set(wanted.values()))]
    if isinstance(version, Unavailable):
        return [*findings, unreadable(CHECK, "VMs", version)]
    findings.append(causes.balance(inventory, version))
    if not inventory.guests:
        return [*findings, Finding(CHECK, "no-vms", "VMs", "ok", "0 VMs run on nodes that accept VMs")]
    findings.append(causes.images(inventory))
    findings += census.count_vms(inventory)
    return [*findings, *_cures(inventory, cures.outlook(inventory, version.number))]


def _expected_constraints(installation: Installation, namespace: Namespace) -> str:
    """The value of the spread setting for launcher pods in a namespace."""
    if installation.mode(namespace, names.SCHEDULING) != names.ENFORCE:
        return names.OFF
    return namespace.meta.annotation(names.SPREAD_ANNOTATION) or installation.settings.scheduling.spread


def _cures(inventory: Inventory, outlook: Outlook) -> list[Finding]:
    """The estimate of each change, and the least change that is sufficient."""
    part = ""
    if outlook.nodes < len(inventory.open):
        part = f", estimated on a sample of {pluralize(outlook.nodes, 'node')} and {pluralize(outlook.vms, 'VM')}"
    how = (
        "standard deviation of VMs per node and of requested memory after a restart of all VMs, by kube-scheduler's "
        f"scores of load, images and constraints{part}"
    )
    texts = [f"no change: {_short(outlook.now)}", *(f"{cure.title}: {_short(cure.spread)}" for cure in outlook.cures)]
    figures = {
        "estimatedNodes": outlook.nodes,
        "estimatedVms": outlook.vms,
        "asNow": _estimate(outlook.now),
        "cures": [{"cure": cure.key, **_estimate(cure.spread)} for cure in outlook.cures],
        "measure": outlook.measure,
        "cheapest": outlook.cheapest.key if outlook.cheapest else None,
    }
    estimate = Measurement(CHECK, "estimate", "estimate", "ok", f"{how}: {'; '.join(texts)}", figures=figures)
    return [estimate, _verdict(outlook)]


def _verdict(outlook: Outlook) -> Finding:
    if outlook.cheapest is None:
        what = "none needed: VMs are spread as evenly as after any of the estimated changes"
        return Finding(CHECK, "even", "cure", "ok", what)
    if outlook.cheapest.key == cures.RESTART:
        what = "VMs that start now are spread evenly, but running VMs were placed earlier"
        todo = "live-migrate VMs from the fullest nodes, or wait until they restart"
        return Finding(CHECK, "uneven:restart", "cure", "warning", what, todo)
    what = f"the least change that is sufficient is: {outlook.cheapest.title}"
    return Finding(CHECK, f"uneven:{outlook.cheapest.key}", "cure", "warning", what, outlook.cheapest.todo)


def _short(spread: SpreadEstimate) -> str:
    unplaced = f", {pluralize(spread.unplaced, 'VM')} without a node" if spread.unplaced else ""
    empty = f", {pluralize(spread.empty, 'node')} without VMs" if spread.empty else ""
    return f"{spread.deviation:.1f} VMs, {spread.memory_deviation:.1f} percentage points{empty}{unplaced}"


def _estimate(spread: SpreadEstimate) -> dict[str, Any]:
    return {
        "vmsStandardDeviation": round(spread.deviation, 3),
        "requestedCpuStandardDeviation": round(spread.cpu_deviation, 3),
        "requestedMemoryStandardDeviation": round(spread.memory_deviation, 3),
        "nodesWithoutVms": spread.empty,
        "vmsWithoutRoom": spread.unplaced,
    }


async def _version(installation: Installation) -> ApiServerVersion | Unavailable:
    try:
        status, body = await installation.reader.api.get("/version")
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except ApiConnectionError as error:
        return Unavailable(error.why)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status, answer = 0, {}
    match = re.fullmatch(r"v(\d{1,4})\.(\d{1,4})\..*", str(answer.get("gitVersion")))
    if status != 200 or match is None:
        return Unavailable("the API server does not report its version")
    return ApiServerVersion((int(match[1]), int(match[2])))
