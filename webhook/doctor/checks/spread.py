"""Where virtual machines are, why they pile up, and the cheapest cure that would spread them."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from webhook import names
from webhook.doctor.spread import causes, census, cures
from webhook.doctor.spread.causes import CHECK, Version
from webhook.doctor.spread.cures import Outlook
from webhook.doctor.spread.estimate import SpreadEstimate
from webhook.doctor.spread.inventory import Inventory, take
from webhook.doctor.support.finding import Finding, Measurement, pluralize, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import NODES, RUNNING_PODS
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.views import Namespace

_SPREAD_BY_HOST: Final = ("hostname", "both")


async def check(installation: Installation) -> list[Finding]:
    """Look at nodes and at what runs on them."""
    nodes = await installation.reader.all(NODES)
    pods = await installation.reader.all(RUNNING_PODS)
    namespaces = await installation.namespaces()
    for read in (nodes, pods, namespaces):
        if isinstance(read, Unavailable):
            return [unreadable(CHECK, "VMs", read)]
    assert not isinstance(nodes, Unavailable)
    assert not isinstance(pods, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    wanted = {space.meta.name or "": _expected_constraints(installation, space) for space in namespaces}
    found = take(nodes, pods, lambda name: wanted.get(name, names.OFF) in _SPREAD_BY_HOST)
    if not found.open:
        what = (
            f"0 of {pluralize(len(nodes), 'node')} can take VMs: labeled kubevirt.io/schedulable=true, not cordoned, "
        )
        return [Finding(CHECK, "nodes", "ok", f"{what}without taints that keep pods off")]
    version = await _version(installation)
    findings: list[Finding] = [*causes.zones(found, set(wanted.values()))]
    if isinstance(version, Unavailable):
        return [*findings, unreadable(CHECK, "VMs", version)]
    findings.append(causes.balance(found, version))
    if not found.guests:
        return [*findings, Finding(CHECK, "VMs", "ok", "no VM runs on nodes that can take VMs")]
    findings.append(causes.images(found))
    findings += census.present(found)
    return [*findings, *_cures(found, cures.outlook(found, version.number))]


def _expected_constraints(installation: Installation, namespace: Namespace) -> str:
    """Which constraints launcher pods get in a namespace."""
    if installation.mode(namespace, names.SCHEDULING) != names.ENFORCE:
        return names.OFF
    return namespace.meta.annotation(names.SPREAD_ANNOTATION) or installation.settings.scheduling.spread


def _cures(found: Inventory, outlook: Outlook) -> list[Finding]:
    """What each cure would do, and the cheapest one that is good enough."""
    part = ""
    if outlook.nodes < len(found.open):
        part = f", on {outlook.nodes} of the nodes and {outlook.vms} of the VMs"
    how = (
        "standard deviation of VMs per node and of requested memory, if all VMs were started anew one by one, by "
        f"kube-scheduler's scores of load, images and constraints{part}"
    )
    texts = [f"as now: {_short(outlook.now)}", *(f"{cure.title}: {_short(cure.spread)}" for cure in outlook.cures)]
    figures = {
        "estimatedNodes": outlook.nodes,
        "estimatedVms": outlook.vms,
        "asNow": _estimate(outlook.now),
        "cures": [{"cure": cure.key, **_estimate(cure.spread)} for cure in outlook.cures],
        "measure": outlook.measure,
        "cheapest": outlook.cheapest.key if outlook.cheapest else None,
    }
    estimate = Measurement(CHECK, "estimate", "ok", f"{how}: {'; '.join(texts)}", figures=figures)
    return [estimate, _verdict(outlook)]


def _verdict(outlook: Outlook) -> Finding:
    if outlook.cheapest is None:
        return Finding(CHECK, "cure", "ok", "VMs are spread about as evenly as any of the cures would spread them")
    if outlook.cheapest.key == cures.RESTART:
        what = "VMs that start now are spread evenly; those that run were placed before"
        todo = "live-migrate VMs off the fullest nodes, or wait until they restart"
        return Finding(CHECK, "cure", "warning", what, todo)
    what = f"the cheapest cure that is enough: {outlook.cheapest.title}"
    return Finding(CHECK, "cure", "warning", what, outlook.cheapest.todo)


def _short(spread: SpreadEstimate) -> str:
    unplaced = f", {pluralize(spread.unplaced, 'VM')} without room" if spread.unplaced else ""
    empty = f", {spread.empty} empty" if spread.empty else ""
    return f"{spread.deviation:.1f} VMs, {spread.memory_deviation:.1f} pp{empty}{unplaced}"


def _estimate(spread: SpreadEstimate) -> dict[str, Any]:
    return {
        "vmsStandardDeviation": round(spread.deviation, 3),
        "requestedCpuStandardDeviation": round(spread.cpu_deviation, 3),
        "requestedMemoryStandardDeviation": round(spread.memory_deviation, 3),
        "nodesWithoutVms": spread.empty,
        "vmsWithoutRoom": spread.unplaced,
    }


async def _version(installation: Installation) -> Version | Unavailable:
    try:
        status, body = await installation.reader.api.get("/version")
        told = msgspec.json.decode(body, type=dict[str, Any])
    except ApiConnectionError as error:
        return Unavailable(error.why)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status, told = 0, {}
    match = re.fullmatch(r"v(\d{1,4})\.(\d{1,4})\..*", str(told.get("gitVersion")))
    if status != 200 or match is None:
        return Unavailable("the API server does not say its version")
    return Version((int(match[1]), int(match[2])))
