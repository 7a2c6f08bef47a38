"""A fake API server in a process of its own, with many nodes and namespaces: ``python -m bench.start.cluster``.

It prints its port as soon as it listens. At SIGUSR1 it forgets what has happened and ends all watches, so that
everything is listed again.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from typing import Final

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook import names
from webhook.k8s.resources import NAMESPACES, NODES
from webhook.kubevirt.resources import KUBEVIRTS

LABELS: Final = 120
_GROUPS: Final = 10
_ANNOTATION: Final = "x" * 2000


def furnished(nodes: int, namespaces: int) -> FakeApiServer:
    """The server; its nodes are of ten kinds, with a hundred and twenty labels each."""
    cluster = FakeApiServer()
    for resource in (NAMESPACES, KUBEVIRTS, NODES):
        cluster.serve(resource)
    cluster.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status={"phase": "Deployed"})
    for number in range(namespaces):
        labels = {names.policy_label(names.SCHEDULING): "enforce", "team": f"team-{number % 50}"}
        cluster.put(NAMESPACES, f"namespace-{number}", metadata={"labels": labels})
    for number in range(nodes):
        group = number % _GROUPS
        labels = {f"feature-{each}.node.kubevirt.io/kind-{group}": "true" for each in range(LABELS - 2)}
        labels |= {"kubernetes.io/hostname": f"node-{number}", "zone": f"zone-{number % 3}"}
        allocatable = {"cpu": "64", "memory": f"{2**28 + number}Ki", "pods": "110", "devices.kubevirt.io/kvm": "1k"}
        metadata = {"labels": labels, "annotations": {"a": _ANNOTATION}}
        cluster.put(NODES, f"node-{number}", metadata=metadata, spec={}, status={"allocatable": allocatable})
    return cluster


async def _serve(cluster: FakeApiServer, context: ssl.SSLContext) -> None:
    def forget() -> None:
        cluster.compact()
        cluster.cut()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, forget)
    async with running(cluster, context):
        print(cluster.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until the process is ended. Arguments: nodes, namespaces, certificate, key."""
    nodes, namespaces, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    asyncio.run(_serve(furnished(int(nodes), int(namespaces)), context))


if __name__ == "__main__":
    main()
