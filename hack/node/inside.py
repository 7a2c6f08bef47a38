"""Run inside the namespaces: mounts, the network, the cluster, and the command beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hack.controlplane.build import EX_UNAVAILABLE
from hack.node.cluster import NodeCluster
from tests.e2e.support.processes import StartError

# Written by kubelets; a file over each keeps the machine's own as they are.
SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
# Outside, the process has another id; its parent's is found by its name.
TEXT = """
A node runs until Ctrl-C: Kubernetes {version}, nodes {nodes}, image {image}.
It has namespaces of its own, so commands run inside them, in a second terminal:

  nsenter --target $(pgrep -of hack.node.inside) --net --mount --pid -- \\
    env KUBECONFIG={kubeconfig} PATH={binaries}:$PATH bash

There, for example:

  {python} -m webhook install --image {image}
  kubectl -n kubevirt-webhook get pods -o wide
"""


def main(make_cluster: Callable[[Path], NodeCluster] = NodeCluster, text: str = TEXT) -> int:
    """Start the cluster and run the command; returns its exit status, or 69 where the cluster does not start.

    Args:
        make_cluster: of the directory where everything is written.
        text: printed where there is no command.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    place = Path(os.environ["NODE_DIRECTORY"])
    try:
        _mount(place)
        _network()
        with make_cluster(place) as cluster:
            return _run(cluster, sys.argv[1:], text)
    except (StartError, subprocess.CalledProcessError) as error:
        print(f"node: {error}", file=sys.stderr)
        return EX_UNAVAILABLE
    except KeyboardInterrupt:
        print("\nnode: all gone")
        return 130


def _run(cluster: NodeCluster, command: list[str], text: str) -> int:
    environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "NODE_IMAGE": cluster.image}
    if command:
        return subprocess.run(command, env=environ, check=False).returncode
    said = text.format(
        version=cluster.version,
        nodes=", ".join(cluster.nodes),
        image=cluster.image,
        kubeconfig=cluster.kubeconfig,
        binaries=cluster.binaries,
        python=sys.executable,
    )
    print(said, flush=True)
    signal.pause()
    return 0


def _mount(place: Path) -> None:
    """Let nothing that is written here reach the machine's own file systems."""
    _call("mount", "--make-rprivate", "/")
    _call("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={os.environ['NODE_USR']}:/usr", "/usr")
    for name in ("etc", "var"):
        upper, work = place / f"{name}-upper", place / f"{name}-work"
        upper.mkdir()
        work.mkdir()
        _call(
            "mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/{name},upperdir={upper},workdir={work}", f"/{name}"
        )
    _call("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name, value in SYSCTLS.items():
        file = place / name.replace("/", "-")
        file.write_text(f"{value}\n")
        _call("mount", "--bind", str(file), f"/proc/sys/{name}")
    # Volumes of pods are mounted by the kubelet, and seen by the containers.
    _call("mount", "--make-rshared", "/")


def _network() -> None:
    """The address of the nodes on a link of its own, with the default route: no packet leaves the namespace."""
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    for address in NodeCluster.ADDRESSES:
        _call("ip", "address", "add", f"{address}/24", "dev", "node0")
    for name in ("node0", "node1"):
        _call("ip", "link", "set", name, "up")
    _call("ip", "route", "add", "default", "dev", "node0")
    for name in ("ip_forward", "conf/all/route_localnet"):
        Path("/proc/sys/net/ipv4", name).write_text("1\n")
    _call("hostname", "node")


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
