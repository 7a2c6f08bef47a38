"""Policies by namespace: the modes that count, in parts, without holding up reviews."""

from __future__ import annotations

import asyncio

from tests import builders
from tests.builders import installed
from tests.server.page.samples import PageCluster, labeled, record
from webhook.facts import KubeVirtKey, NamespaceKey
from webhook.server.page.counts import OTHERS, DayCounts
from webhook.server.page.overview import POLICIES, SLICE, namespace_table

NAMESPACES = [
    labeled("shop", scheduling="enforce", migration="warn"),
    labeled("lab", scheduling="audit"),
    labeled("odd", scheduling="nonsense"),
    labeled("plain"),
]


def cluster() -> PageCluster:
    return PageCluster(
        {KubeVirtKey(): installed()} | {NamespaceKey(each.meta.name or ""): each for each in NAMESPACES}, NAMESPACES
    )


async def test_modes_are_those_that_reviews_have() -> None:
    table = await namespace_table(cluster(), builders.settings(), DayCounts())

    modes = {row.name: {cell.policy: cell.mode for cell in row.cells} for row in table.rows}
    assert modes["shop"] == {"scheduling": "enforce", "migration": "warn", "instancetypes": "off", "eviction": "off"}
    assert (modes["lab"]["scheduling"], modes["odd"]["scheduling"]) == ("audit", "off")
    assert "plain" not in modes


async def test_where_a_policy_counts_everywhere_all_namespaces_are_shown() -> None:
    table = await namespace_table(cluster(), builders.settings(cluster_wide=True), DayCounts())

    modes = {row.name: row.cells[POLICIES.index("scheduling")].mode for row in table.rows}
    assert modes == {"lab": "audit", "odd": "off", "plain": "enforce", "shop": "enforce"}


async def test_what_was_done_today_is_beside_the_mode() -> None:
    counts = DayCounts()
    for decision in ("patched", "denied", "skipped", "patched"):
        counts.add(record(namespace="gone", decision=decision))
    counts.add(record(namespace=OTHERS))
    table = await namespace_table(cluster(), builders.settings(), counts, prefix="g")

    (row,) = table.rows
    cell = row.cells[POLICIES.index("scheduling")]
    assert (row.name, cell.mode, cell.counts) == ("gone", "unknown", (("patched", 2), ("denied", 1)))


async def test_ten_thousand_namespaces_come_in_parts_and_reviews_come_between() -> None:
    many = [labeled(f"n{number:05}", scheduling="enforce") for number in range(10_000)]
    big = PageCluster({KubeVirtKey(): installed()} | {NamespaceKey(f"n{n:05}"): many[n] for n in range(50)}, many)
    turns = 0
    ended = asyncio.Event()

    async def review() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(review())
    table = await namespace_table(big, builders.settings(), DayCounts())
    ended.set()
    await beside

    assert (len(table.rows), table.total, table.first) == (50, 10_000, 0)
    assert turns >= 10_000 // SLICE
