"""What a running server's metrics say beside counts of reviews."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from webhook.admission.lines import LineWriter
from webhook.cluster.source import Cluster
from webhook.facts import KubeVirtKey, SchedulerHealth, SchedulerKey
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.server.app import App
from webhook.server.ops import MetricsState
from webhook.server.runtime.background import LABELS, Background
from webhook.server.runtime.certificates import LABELS as CERTIFICATE_LABELS
from webhook.server.runtime.certificates import Certificates

if TYPE_CHECKING:
    from webhook.server.background.fidelity import FidelityCheck
from webhook.server.runtime.settings_follower import SettingsFollower


def metrics_state(  # noqa: PLR0913 - one for each part of the server
    app: App,
    audit: LineWriter,
    settings: SettingsFollower,
    cluster: Cluster,
    parity: FidelityCheck | None,
    beside: Background,
    certificates: Certificates,
    waiting_for: Callable[[], tuple[str, ...]],
) -> MetricsState:
    """What the metrics say of a server's parts at the time of a scrape.

    Args:
        app: answers the reviews.
        audit: writes the audit lines.
        settings: the settings in force.
        cluster: the source of facts.
        parity: the fidelity check; None where facts come from files, which nothing is compared with.
        beside: the background tasks.
        certificates: the certificate of the listener.
        waiting_for: what keeps the server from being ready; empty: nothing.
    """

    def available() -> dict[str, float]:
        result = {}
        for name in settings.current().scheduling.schedulers:
            health = cluster.peek(SchedulerKey(name))
            result[name] = float(isinstance(health, SchedulerHealth) and health.state == "available")
        return result

    def release() -> Mapping[tuple[str, ...], float]:
        install = cluster.peek(KubeVirtKey())
        configuration = install.configuration if isinstance(install, KubeVirtInstall) else None
        if not isinstance(configuration, ClusterConfig):
            return {}
        running = configuration.rules.release
        rules = "assumed" if configuration.is_release_assumed else running.support
        return {(str(running), rules, "definitions" if running.definitions else "tables"): 1.0}

    return MetricsState(
        gauges={
            **certificates.gauges(),
            **beside.gauges(),
            "kubevirt_webhook_requests_in_flight": ("Requests in progress.", lambda: {"": app.in_flight}),
            "kubevirt_webhook_request_bytes": (
                "Memory that the bodies of requests in progress take, in bytes.",
                lambda: {"": app.taken_bytes},
            ),
            "kubevirt_webhook_ready": (
                "1 once all watches are synced and the certificate can be verified.",
                lambda: {"": float(not waiting_for())},
            ),
            "kubevirt_webhook_kubevirt_release": (
                "1, with the version of KubeVirt whose rules apply, and where its known fields come from.",
                release,
            ),
            "kubevirt_webhook_scheduler_available": (
                "1 while a scheduler's health check finds it available.",
                available,
            ),
            "kubevirt_webhook_staleness_seconds": (
                "Time since a watch last heard from the API server.",
                cluster.staleness,
            ),
        },
        counters={
            **certificates.counters(),
            **beside.counters(),
            "kubevirt_webhook_audit_dropped_total": (
                "Audit lines that could not be written, or that were not read in time.",
                lambda: {"": audit.dropped_count},
            ),
            "kubevirt_webhook_etcd_restores_total": (
                "Times that etcd was found to have been restored from an older copy.",
                lambda: {"": cluster.restores},
            ),
            "kubevirt_webhook_settings_reloads_total": (
                "Changes of the settings file by result.",
                lambda: dict(settings.reloads),
            ),
            "kubevirt_webhook_parity_checked_total": (
                "Running VMs compared by the fidelity check, by result.",
                lambda: dict(parity.checked) if parity else {},
            ),
            "kubevirt_webhook_parity_differences_total": (
                "Fields that differed in the fidelity check.",
                lambda: {"": parity.differing} if parity else {},
            ),
            "kubevirt_webhook_parity_rounds_failed_total": (
                "Rounds of the fidelity check that failed.",
                lambda: {"": parity.failed} if parity else {},
            ),
        },
        label={
            **CERTIFICATE_LABELS,
            **LABELS,
            "kubevirt_webhook_kubevirt_release": ("version", "rules", "fields"),
            "kubevirt_webhook_scheduler_available": "scheduler",
            "kubevirt_webhook_staleness_seconds": "watch",
            "kubevirt_webhook_settings_reloads_total": "result",
            "kubevirt_webhook_parity_checked_total": "result",
        },
    )
