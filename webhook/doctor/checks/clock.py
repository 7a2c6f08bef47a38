"""Do the clocks agree? Certificates and Leases are judged by them."""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.resources import LEASES
from webhook.k8s.timestamps import unix_time

CHECK: Final = "clock"
# Leaves are good for five minutes before they were made, so that much is forgiven.
_GRAVE_SECONDS: Final = 300.0
_SECONDS: Final = 10.0


async def check(installation: Installation) -> list[Finding]:
    """The API server's clock beside ours, and those of the schedulers' nodes beside the API server's."""
    before = installation.clock.wall()
    server = await installation.reader.api.date()
    if isinstance(server, Unavailable):
        return [unreadable(CHECK, "API server", server)]
    # Between the two reads of our clock, give or take the second that its Date header is cut off at.
    skew = server + 0.5 - (before + installation.clock.wall()) / 2
    findings = [_evaluate_skew("API server", skew, "this host", "see that NTP runs on both hosts")]
    for scheduler in installation.settings.scheduling.schedulers.values():
        guard = scheduler.guard
        if guard.kind != "lease":
            continue
        lease = await installation.reader.get(LEASES, guard.namespace, guard.name)
        renewed = None if lease is None or isinstance(lease, Unavailable) else lease.spec and lease.spec.renew_time
        moment = unix_time(renewed or None)
        # One from the past may just be old.
        if moment is not None and moment > server + 1 + _SECONDS:
            findings.append(
                _evaluate_skew(
                    f"scheduler {scheduler.name}", moment - server, "the API server", "see that NTP runs on its node"
                )
            )
    return findings


def _evaluate_skew(subject: str, skew: float, other: str, todo: str) -> Finding:
    ahead = f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} that of {other}"
    if abs(skew) > _GRAVE_SECONDS:
        return Finding(CHECK, subject, "failure", f"{ahead}, more than certificates forgive", todo)
    if abs(skew) > _SECONDS:
        return Finding(CHECK, subject, "warning", ahead, todo)
    return Finding(CHECK, subject, "ok", f"its clock is that of {other}, to {max(1, abs(skew)):.0f} s")
