"""What the policies achieve: what a replica's metrics report, and VMs that the policy scheduling missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from webhook import names
from webhook.doctor.installation import Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, Verdict, check, finding, ok, readable, unknown, unreadable, warning
from webhook.k8s.client.api import ApiConnectionError, Forbidden
from webhook.k8s.paths import object_path
from webhook.k8s.resources import NAMESPACES, PODS
from webhook.k8s.types.core import Pod
from webhook.kubevirt.resources import VMIS
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.text import pluralize

# Namespace and name of a VM.
_VmKey: TypeAlias = tuple[str, str]
_CHECK: Final = "effect"
# Values that set a constraint on any nodes; one on zones alone requires nodes with zones.
_SPREADS: Final = ("hostname", "both")
_LAUNCHERS: Final = {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}
_STALE_SECONDS: Final = 120.0
_REACH: Final = (
    "check that a replica is ready; if one is, the NetworkPolicy keeps the API server from its port ops: "
    'run "kubevirt-webhook install --callers auto"'
)
_LOG: Final = "check the log of the replicas"
_LATE: Final = f"a watch has not been up to date for more than {_STALE_SECONDS:.0f}s"
_UNTRUSTED: Final = "a caBundle does not verify the certificate that the replica serves"
_RETRIED: Final = "certificate rotation has failed and was retried"
_SEE: Final = 'see the findings of the check "schedulers"'
_OPTED_IN: Final = "kubevirt_webhook_namespaces"
# Metrics, each with its values that show a fault, the verdict, the fault, and what to do.
_ALARMS: Final[tuple[tuple[str, Callable[[float], bool], Verdict, str, str], ...]] = (
    ("ca_bundle_match", lambda value: value == 0, "failure", _UNTRUSTED, _LOG),
    ("panics_total", lambda value: value > 0, "warning", "internal errors", f"{_LOG}, and report a bug"),
    ("scheduler_available", lambda value: value == 0, "warning", "a scheduler is unavailable", _SEE),
    ("staleness_seconds", lambda value: value > _STALE_SECONDS, "warning", _LATE, _LOG),
    ("certificate_failures_total", lambda value: value > 0, "warning", _RETRIED, _LOG),
)


async def check_effect(installation: Installation) -> list[Finding]:
    """Read the metrics of one replica through the API server, and look at launcher pods."""
    return [*await _check_metrics(installation), *await _check_launchers(installation)]


@check(_CHECK)
async def _check_metrics(installation: Installation) -> list[Finding]:
    if installation.url:
        what = f"not read: the server at {installation.url} is not behind the Service"
        return [unknown("metrics-not-read", "metrics", what, "read /metrics at server.opsListen")]
    api = readable("metrics", installation.reader.api)
    service = installation.settings.webhooks.service
    path = object_path("v1", "services", service.namespace, f"{service.name}:ops") + "/proxy/metrics"
    try:
        status, body = await api.get(path)
    except ApiConnectionError as error:
        return [unreadable("metrics", Unavailable(error.why), _REACH)]
    if status == 403:
        why = "the API server denied the request (403): grant get on services/proxy"
        return [unreadable("metrics", Forbidden(why))]
    if status != 200:
        why = f"the API server answered a read of /metrics through the Service with status {status}"
        return [unreadable("metrics", Unavailable(why), _REACH)]
    try:
        families = text_string_to_metric_families(body.decode(errors="replace"))
        samples = [sample for family in families for sample in family.samples]
    except (ValueError, KeyError, IndexError):
        return [unreadable("metrics", Unavailable("the replica's answer is not in the Prometheus text format"))]
    # A scheduler that no namespace has opted in to is no fault: without a setting, one is declared.
    is_scheduling = any(each.name == _OPTED_IN and each.labels.get("policy") == names.SCHEDULING for each in samples)
    findings = []
    for metric, is_fault, verdict, fault, todo in _ALARMS:
        name = f"kubevirt_webhook_{metric}"
        is_missed = is_scheduling or metric != "scheduler_available"
        if is_missed and any(sample.name == name and is_fault(sample.value) for sample in samples):
            what = f"a replica reports: {fault} ({name})"
            findings.append(finding(verdict, f"metric:{name}", "metrics", what, todo))
    return findings or [ok("metrics-healthy", "metrics", "a replica reports no faults")]


@check(_CHECK)
async def _check_launchers(installation: Installation) -> list[Finding]:
    """Look for VMs without what the policy sets where it is enforced, and their owners did not."""
    namespaces = await installation.reader.all(NAMESPACES)
    if isinstance(namespaces, Unavailable):
        return []  # Another check reports it.
    settings = installation.settings.of(SchedulingSettings)
    # What the policy sets in each namespace that enforces it.
    enforced = {
        namespace.meta.name or "": settings.with_annotations(namespace.meta.annotations or {})
        for namespace in namespaces
        if installation.mode(namespace, names.SCHEDULING) == names.ENFORCE
    }
    if not enforced:
        return []
    pods = readable("VMs", await installation.reader.all(PODS, query=_LAUNCHERS))
    launchers = [
        _Launcher(pod, owner.name, enforced[namespace])
        for pod in pods
        if (namespace := pod.meta.namespace or "") in enforced
        and pod.status.phase in ("Pending", "Running")
        and (owner := pod.meta.controller_owner())
        and owner.name
    ]
    total = f"{pluralize(len(launchers), 'launcher pod')} in namespaces that enforce scheduling"
    findings = []
    if any(each.scheduler_name in each.schedulers for each in enforced.values()):
        missed = await _unscheduled(installation, launchers)
        what = f"{total}; all have the scheduler that the policy or the owner set"
        found = f"under {names.DEFAULT_SCHEDULER} although their owners set no scheduler"
        findings.append(_compare(missed, "vms-missed", found, total) or ok("vms-scheduled", "VMs", what))
    if any(each.wants_spread for each in launchers) or any(each.spread in _SPREADS for each in enforced.values()):
        missed = list(dict.fromkeys(each.vm for each in launchers if each.wants_spread and not each.is_spread))
        what = f"{total}; all have the topology spread constraints that the policy or the owner set"
        found = "without topology spread constraints although their owners set none"
        findings.append(_compare(missed, "vms-not-spread", found, total) or ok("vms-spread", "VMs", what))
    return findings


class _Launcher(NamedTuple):
    """A launcher pod, the name of its VM, and what the policy sets in its namespace."""

    pod: Pod
    name: str
    settings: SchedulingSettings

    @property
    def vm(self) -> _VmKey:
        """Its VM."""
        return self.pod.meta.namespace or "", self.name

    @property
    def wants_spread(self) -> bool:
        """Whether the policy sets a constraint that does not depend on the nodes, unless its owner removed it."""
        own = self.pod.meta.annotation(names.SPREAD_ANNOTATION) or self.settings.spread
        return own.strip() in _SPREADS and not self.pod.meta.annotation(names.INJECTED_SPREAD_ANNOTATION)

    @property
    def is_spread(self) -> bool:
        """Whether it has constraints, whoever set them."""
        return bool(self.pod.spec.topology_spread_constraints)


async def _unscheduled(installation: Installation, launchers: Iterable[_Launcher]) -> list[_VmKey]:
    """The VMs, each once, that the default scheduler places although the policy sets another, and the owner none."""
    placed = dict.fromkeys(
        each.vm
        for each in launchers
        if each.settings.scheduler_name in each.settings.schedulers
        and each.pod.spec.scheduler_name == names.DEFAULT_SCHEDULER
    )
    chosen: set[_VmKey] = set()
    for namespace in sorted({namespace for namespace, _ in placed}):
        vmis = readable("VMs", await installation.reader.all(VMIS, namespace))
        chosen |= {(namespace, vmi.meta.name or "") for vmi in vmis if vmi.scheduler_name}
    return [vm for vm in placed if vm not in chosen]


def _compare(missed: Sequence[_VmKey], code: str, found: str, total: str) -> Finding | None:
    """The warning of VMs that lack something; None where there are none."""
    if not missed:
        return None
    what = f"{pluralize(len(missed), 'VM')} (of {total}) {found}, for example {'/'.join(missed[0])}"
    todo = "migrate or restart VMs that are older than the opt-in, or than the scheduler; for others search the audit"
    return warning(code, "VMs", what, f"{todo} lines of their pods")
