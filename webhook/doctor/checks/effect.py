"""Does it work? What a replica says of itself, and the VMs that should run under our scheduler and don't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from webhook import names
from webhook.doctor.support.finding import Finding, Verdict, pluralize, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import PODS
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError, Forbidden
from webhook.kubevirt.resources import VMIS

CHECK: Final = "effect"
_LAUNCHERS: Final = {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}
_LIVING: Final = ("Pending", "Running")
_STALE_SECONDS: Final = 120.0


class _MetricReading(NamedTuple):
    """A metric that says something is wrong."""

    metric: str
    wrong: Callable[[float], bool]
    verdict: Verdict
    what: str
    todo: str


_REACH: Final = (
    "see that a replica is ready; if it is, the NetworkPolicy keeps the API server from its port ops: "
    "kubevirt-webhook install --callers auto"
)
_LOG: Final = "look at the log of the replicas"
_READINGS: Final = (
    _MetricReading("ca_bundle_match", lambda value: value == 0, "failure", "a caBundle refuses what it serves", _LOG),
    _MetricReading("panics_total", lambda value: value > 0, "warning", "requests met a bug", f"{_LOG}, and report it"),
    _MetricReading(
        "scheduler_alive", lambda value: value == 0, "warning", "it takes a scheduler for dead", "see schedulers"
    ),
    _MetricReading(
        "staleness_seconds", lambda value: value > _STALE_SECONDS, "warning", "a watch has gone silent", _LOG
    ),
    _MetricReading(
        "certificate_failures_total", lambda value: value > 0, "warning", "rotation had to be tried again", _LOG
    ),
)


async def check(installation: Installation) -> list[Finding]:
    """Ask one replica for its metrics, through the API server, and look at launcher pods."""
    return [*await _metrics(installation), *await _launchers(installation)]


async def _metrics(installation: Installation) -> list[Finding]:
    if installation.url:
        what, todo = "they are not behind the Service, so they were not read", "read /metrics of server.opsListen"
        return [Finding(CHECK, "metrics", "unknown", what, todo)]
    webhooks = installation.settings.webhooks
    service = f"{quote(webhooks.service_name)}:ops"
    text = await _read(installation, f"/api/v1/namespaces/{quote(webhooks.service_namespace)}/services/{service}/proxy")
    if isinstance(text, Unavailable):
        finding = unreadable(CHECK, "metrics", text)
        return [finding if isinstance(text, Forbidden) else msgspec.structs.replace(finding, todo=_REACH)]
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, KeyError, IndexError):
        return [unreadable(CHECK, "metrics", Unavailable("what the replica answered is no text of metrics"))]
    findings = []
    for reading in _READINGS:
        found = [one for one in samples if one.name == f"kubevirt_webhook_{reading.metric}"]
        if any(reading.wrong(one.value) for one in found):
            what = f"a replica says: {reading.what} (kubevirt_webhook_{reading.metric})"
            findings.append(Finding(CHECK, "metrics", reading.verdict, what, reading.todo))
    return findings or [Finding(CHECK, "metrics", "ok", "a replica reports no trouble")]


async def _read(installation: Installation, proxy: str) -> str | Unavailable:
    try:
        status, body = await installation.reader.api.get(f"{proxy}/metrics")
    except ApiConnectionError as error:
        return Unavailable(error.why)
    if status == 403:
        return Forbidden("the API server refused with 403: grant get on services/proxy")
    if status != 200:
        return Unavailable(f"the API server answered {status} to a request for them through the Service")
    return body.decode(errors="replace")


async def _launchers(installation: Installation) -> list[Finding]:
    """VMs that nobody chose a scheduler for, that are ours to place, and that the default one placed."""
    namespaces = await installation.namespaces()
    if isinstance(namespaces, Unavailable):
        return []  # said elsewhere
    enforcing = {one.meta.name for one in namespaces if installation.mode(one, names.SCHEDULING) == names.ENFORCE}
    if not enforcing:
        return []
    pods = await installation.reader.all(PODS, query=_LAUNCHERS)
    if isinstance(pods, Unavailable):
        return [unreadable(CHECK, "VMs", pods)]
    ours = [pod for pod in pods if pod.meta.namespace in enforcing and pod.status.phase in _LIVING]
    passed_over: dict[tuple[str, str], None] = {}
    for pod in ours:
        owner = pod.meta.controller_owner()
        if owner and owner.name and pod.spec.scheduler_name == names.DEFAULT_SCHEDULER:
            passed_over[pod.meta.namespace or "", owner.name] = None
    chosen: set[tuple[str, str]] = set()
    for namespace in sorted({place for place, _ in passed_over}):
        vmis = await installation.reader.all(VMIS, namespace)
        if isinstance(vmis, Unavailable):
            return [unreadable(CHECK, "VMs", vmis)]
        chosen |= {(namespace, vmi.meta.name or "") for vmi in vmis if vmi.scheduler_name}
    left = [f"{namespace}/{name}" for namespace, name in passed_over if (namespace, name) not in chosen]
    if left:
        what = (
            f"{pluralize(len(left), 'VM')} of {len(ours)} launcher pods where scheduling is enforced run under "
            f"{names.DEFAULT_SCHEDULER}, though nobody chose it; {left[0]} for one"
        )
        todo = "migrate or restart those older than the opt-in; for others look for their pods in the audit lines"
        return [Finding(CHECK, "VMs", "warning", what, todo)]
    what = f"{pluralize(len(ours), 'launcher pod')} where scheduling is enforced: none was passed over"
    return [Finding(CHECK, "VMs", "ok", what)]
