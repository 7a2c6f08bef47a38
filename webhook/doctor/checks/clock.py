"""Compares clocks, on which certificates and Leases depend."""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.resources import LEASES
from webhook.k8s.timestamps import unix_time

CHECK: Final = "clock"
# Serving certificates are valid from five minutes before they are made, so they tolerate this much.
_GRAVE_SECONDS: Final = 300.0
_SECONDS: Final = 10.0


async def check(installation: Installation) -> list[Finding]:
    """Compare the API server's clock with that of this host, and those of the schedulers with the API server's."""
    before = installation.clock.wall()
    server = await installation.reader.api.date()
    if isinstance(server, Unavailable):
        return [unreadable(CHECK, "API server", server)]
    # The Date header is cut off at whole seconds; the local time is the middle between before and after.
    skew = server + 0.5 - (before + installation.clock.wall()) / 2
    findings = [_evaluate_skew("API server", skew, "this host", "check that NTP runs on both hosts")]
    for scheduler in installation.settings.scheduling.schedulers.values():
        guard = scheduler.guard
        if guard.kind != "lease":
            continue
        lease = await installation.reader.get(LEASES, guard.namespace, guard.name)
        renewed = None if lease is None or isinstance(lease, Unavailable) else lease.spec and lease.spec.renew_time
        moment = unix_time(renewed or None)
        # A renewal in the past may just be old, so only one in the future shows a wrong clock.
        if moment is not None and moment > server + 1 + _SECONDS:
            subject, todo = f"scheduler {scheduler.name}", "check that NTP runs on its node"
            findings.append(_evaluate_skew(subject, moment - server, "the API server", todo))
    return findings


def _evaluate_skew(subject: str, skew: float, other: str, todo: str) -> Finding:
    direction = "ahead of" if skew > 0 else "behind"
    what = f"clock is {abs(skew):.0f}s {direction} the clock of {other}"
    if abs(skew) > _GRAVE_SECONDS:
        what = f"{what}, more than certificates tolerate ({_GRAVE_SECONDS:.0f}s)"
        return Finding(CHECK, "clock-wrong", subject, "failure", what, todo)
    if abs(skew) > _SECONDS:
        return Finding(CHECK, "clock-skewed", subject, "warning", what, todo)
    what = f"clock agrees with the clock of {other} within {max(1, abs(skew)):.0f}s"
    return Finding(CHECK, "clock-correct", subject, "ok", what)
