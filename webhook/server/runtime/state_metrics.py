"""The metrics of a server itself that are read at each scrape."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from webhook import __version__, names
from webhook.admission.lines import LineWriter
from webhook.cluster.source import Cluster
from webhook.facts import KubeVirtKey, SchedulerHealth, SchedulerKey
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.server.app import ReviewApp
from webhook.server.ops import StateMetric
from webhook.server.runtime.options import SettingsFollower

_OPTED_IN: Final = (names.ENFORCE, names.WARN, names.AUDIT)


def metrics_state(
    app: ReviewApp,
    audit: LineWriter,
    settings: SettingsFollower,
    cluster: Cluster,
    waiting_for: Callable[[], Sequence[str]],
) -> list[StateMetric]:
    """What the metrics say of a server's parts at the time of a scrape."""

    def available() -> dict[str, float]:
        states = {name: cluster.peek(SchedulerKey(name)) for name in settings.current().watched_schedulers}
        return {name: float(isinstance(it, SchedulerHealth) and it.state == "available") for name, it in states.items()}

    def opted_in() -> Mapping[tuple[str, ...], float]:
        current = settings.current()
        excluded = current.every_excluded_namespace
        # Thousands of namespaces have the same labels.
        alike = Counter(
            tuple((each.meta.labels or {}).items()) for each in cluster.namespaces() if each.meta.name not in excluded
        )
        counts: Counter[tuple[str, ...]] = Counter()
        for labels, count in alike.items():
            written = dict(labels)
            for policy in current.policies:
                counts[policy, current.written_mode(policy, "", written)] += count
        return {key: counts[key] for key in product(current.policies, _OPTED_IN) if counts[key]}

    def release() -> Mapping[tuple[str, ...], float]:
        install = cluster.peek(KubeVirtKey())
        configuration = install.configuration if isinstance(install, KubeVirtInstall) else None
        if not isinstance(configuration, ClusterConfig):
            return {}
        running = configuration.rules.release
        rules = "assumed" if configuration.is_release_assumed else running.support
        return {(str(running), rules, "definitions" if running.definitions else "tables"): 1.0}

    def sender_tokens() -> dict[Any, float]:
        return {**app.senders.results} if app.senders else {}

    version, changes = "1, with the version as a label.", "Changes of the settings file by result."
    age = "Time since what is kept of a watch was last known to be up to date."
    taken = "Memory that the bodies of requests in progress take, in bytes."
    synced = "1 while the replica is ready, as at /readyz."
    rules = "1, with the version of KubeVirt whose rules apply, and where its known fields come from."
    modes = "Namespaces that opted in to a policy, by mode, those of a policy for all namespaces among them."
    health = "1 while a scheduler's health check finds it available."
    lost = "Audit lines that could not be written, or that were not read in time."
    tokens = "Verifications of bearer tokens of senders by result."
    restored = "Times that etcd was found to have been restored from an older copy."
    tasks = "Tasks of the event loop that have not ended; steady while the load is."
    return [
        StateMetric("kubevirt_webhook_build_info", version, lambda: {__version__: 1.0}, ("version",)),
        StateMetric("kubevirt_webhook_requests_in_flight", "Requests in progress.", lambda: app.in_flight),
        StateMetric("kubevirt_webhook_request_bytes", taken, lambda: app.request_bytes),
        StateMetric("kubevirt_webhook_event_loop_tasks", tasks, lambda: len(asyncio.all_tasks())),
        StateMetric("kubevirt_webhook_ready", synced, lambda: float(not waiting_for())),
        StateMetric("kubevirt_webhook_kubevirt_release", rules, release, ("version", "rules", "fields")),
        StateMetric("kubevirt_webhook_namespaces", modes, opted_in, ("policy", "mode")),
        StateMetric("kubevirt_webhook_scheduler_available", health, available, ("scheduler",)),
        StateMetric("kubevirt_webhook_staleness_seconds", age, cluster.staleness, ("watch",)),
        StateMetric("kubevirt_webhook_audit_dropped_total", lost, lambda: audit.dropped_count),
        StateMetric("kubevirt_webhook_etcd_restores_total", restored, lambda: cluster.restores),
        StateMetric("kubevirt_webhook_sender_tokens_total", tokens, sender_tokens, ("result",)),
        StateMetric("kubevirt_webhook_settings_reloads_total", changes, lambda: dict(settings.reloads), ("result",)),
    ]
