"""Clusters whose spread kube-scheduler has shown."""

from __future__ import annotations

from bench.placement.nodes import LAUNCHER_BYTES
from bench.placement.rows import ROWS
from bench.placement.sizes import draw_sizes
from webhook.doctor.estimate import GuestDemand, Host, VmGuest, image_points

BY_KEY = {row.key: row for row in ROWS}


def cluster(key: str) -> tuple[list[Host], list[VmGuest], int]:
    row = BY_KEY[key]
    hosts = []
    for node in row.make_nodes():
        host = Host(
            node.name, 1000 * node.size.cpus, node.size.memory_bytes, row.devices, node.size.pods, node.lists_image
        )
        if node.load_millis:
            host.add(GuestDemand.of(node.load_millis, node.load_bytes))
        hosts.append(host)
    guests = [
        VmGuest(
            row.namespace_names[number % row.namespaces],
            f"{number}",
            GuestDemand.of(size.cpu_millis, size.memory_bytes, 1),
        )
        for number, size in enumerate(draw_sizes(row.sizes, row.vms, 1))
    ]
    share = sum(host.lists_image for host in hosts) / len(hosts)
    return hosts, guests, image_points([LAUNCHER_BYTES] * 2, share)
