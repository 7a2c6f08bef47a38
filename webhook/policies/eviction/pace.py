"""When evictions are too many or too soon: blackouts, cool-downs and caps, each the reason for a denial, or None."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from webhook.admission.decision import Reason
from webhook.placement.machines import Migration
from webhook.policies.eviction import messages
from webhook.settings.snapshot import WEEK, Blackout, EvictionSettings

# 1970 began on a Thursday.
_EPOCH: Final = 3 * 24 * 60

# Migrations follow each other where no more than so many of the longest cool-downs lie between their ends: one that
# the descheduler begins right after the longest must not count as the first.
_CLOSE: Final = 2


def blackout(blackouts: Iterable[Blackout], now: float) -> Reason | None:
    """The blackout that holds now.

    Args:
        blackouts: the blackouts of the settings.
        now: Unix time in seconds.
    """
    minute = (int(now // 60) + _EPOCH) % WEEK
    for entry in blackouts:
        if any(begin <= minute < end for begin, end in entry.spans):
            return messages.blackout(entry.text)
    return None


def cool_down(migrations: Iterable[Migration], now: float, settings: EvictionSettings) -> Reason | None:
    """Why a VM stays where it is for a while.

    The time doubles with each migration that ended soon before the next, failed ones too. KubeVirt keeps five finished
    migrations of a VM, which bounds it at sixteen times.

    Args:
        migrations: the VM's migrations, in any order.
        now: Unix time in seconds.
        settings: the section of the policy, with the cool-down in seconds.
    """
    ends = sorted((at for migration in migrations if (at := migration.ended_at) is not None), reverse=True)
    if not ends or not settings.cool_down_seconds:
        return None
    in_a_row = 1
    for later, earlier in pairwise(ends):
        if later - earlier > _CLOSE * settings.max_cool_down_seconds:
            break
        in_a_row += 1
    seconds = min(settings.cool_down_seconds * 2 ** (in_a_row - 1), settings.max_cool_down_seconds)
    left = math.ceil(ends[0] + seconds - now)
    if left <= 0:
        return None
    ago = max(0, math.floor(now - ends[0]))
    return messages.cool_down(seconds, in_a_row, ago, left)


def too_many(evacuated: Mapping[str, int], namespace: str, settings: EvictionSettings) -> Reason | None:
    """Which cap is reached.

    Args:
        evacuated: VMs that are being evacuated, by namespace.
        namespace: the namespace of the VM that is to be evicted.
        settings: the section of the policy, with the caps; 0: no cap.
    """
    # What one namespace has beyond its own cap must not fill that of all.
    most = settings.max_per_namespace or sys.maxsize
    for count, cap, where in (
        (evacuated.get(namespace, 0), settings.max_per_namespace, f"namespace {namespace}"),
        (sum(min(each, most) for each in evacuated.values()), settings.max_per_cluster, "the cluster"),
    ):
        if cap and count >= cap:
            return messages.too_many(count, cap, where)
    return None
