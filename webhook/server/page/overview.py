"""Policies by namespaces: the mode of each, and what it did today."""

from __future__ import annotations

import asyncio
from typing import Any, Final, get_args

import msgspec

from webhook import names
from webhook.admission.audit import Label
from webhook.cluster.source import BrowsableCluster, Cluster
from webhook.facts import Facts, Key, NamespaceKey, NotRead
from webhook.names import Policy
from webhook.review.scope import of_namespace
from webhook.server.page.counts import OTHERS, DayCounts
from webhook.settings.snapshot import Settings

# In the order in which a VM meets them.
POLICIES: Final[tuple[Policy, ...]] = (names.INSTANCETYPES, names.SCHEDULING, names.MIGRATION, names.EVICTION)
# Looking at so many namespaces' labels takes a fraction of a millisecond.
SLICE: Final = 500
UNKNOWN: Final = "unknown"

_SHOWN: Final[tuple[Label, ...]] = tuple(label for label in get_args(Label) if label != "skipped")
_LABELS: Final = tuple(names.policy_label(policy) for policy in POLICIES)


class PolicyCell(msgspec.Struct, frozen=True):
    """One policy in one namespace.

    Attributes:
        mode: ``enforce``, ``warn``, ``audit``, ``off`` or ``unknown``.
        counts: what it did today, without requests that it skipped.
    """

    policy: Policy
    mode: str
    counts: tuple[tuple[Label, int], ...]


class NamespaceRow(msgspec.Struct, frozen=True):
    """One namespace, with a cell for each policy in the order of `POLICIES`."""

    name: str
    cells: tuple[PolicyCell, ...]


class NamespaceTable(msgspec.Struct, frozen=True):
    """A part of the namespaces.

    Attributes:
        rows: those of the part.
        first: the place of the first one, from 0.
        total: how many there are.
    """

    rows: tuple[NamespaceRow, ...]
    first: int
    total: int


async def namespace_table(
    cluster: BrowsableCluster,
    settings: Settings,
    counts: DayCounts,
    *,
    prefix: str = "",
    first: int = 0,
    count: int = 50,
) -> NamespaceTable:
    """The namespaces that have opted in to a policy, or in which one did something today.

    Args:
        cluster: has the namespaces.
        settings: the settings in force.
        counts: what was done today.
        prefix: only namespaces whose names begin like this.
        first: the place of the first row.
        count: how many rows.
    """
    everywhere = any(settings.policy(policy).cluster_wide for policy in POLICIES)
    found = {name for name in counts.namespaces() if name.startswith(prefix)}
    for looked, namespace in enumerate(cluster.namespaces()):
        if looked % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        name, labels = namespace.meta.name or "", namespace.meta.labels or {}
        if name.startswith(prefix) and (everywhere or any(label in labels for label in _LABELS)):
            found.add(name)
    part = sorted(found)[first : first + count]
    return NamespaceTable(tuple(_row(name, cluster, settings, counts) for name in part), first, len(found))


def _row(name: str, cluster: Cluster, settings: Settings, counts: DayCounts) -> NamespaceRow:
    cells = []
    for policy in POLICIES:
        did = counts.of(name, policy)
        shown = tuple((label, did[label]) for label in _SHOWN if did[label])
        cells.append(PolicyCell(policy, _mode(name, policy, cluster, settings), shown))
    return NamespaceRow(name, tuple(cells))


def _mode(namespace: str, policy: Policy, cluster: Cluster, settings: Settings) -> str:
    if namespace == OTHERS:
        return UNKNOWN

    def peek(key: Key[Any]) -> object:
        # The watched copy is good enough for people.
        return cluster.peek(NamespaceKey(key.name) if isinstance(key, NamespaceKey) else key)

    wide = settings.policy(policy).cluster_wide
    try:
        return of_namespace(policy, "enforce", namespace, Facts(peek=peek), wide, settings.excluded_namespaces).mode
    except NotRead:
        return UNKNOWN
