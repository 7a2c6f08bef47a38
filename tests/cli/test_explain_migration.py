from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.clusters import put
from tests.cli.runner import run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.policies.migration.world import node, vmi
from webhook.policies.migration.answer import SCHEMA, MigrationExplanation

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"


def explain(*arguments: str | Path) -> Result:
    return run("explain", "migration", *arguments, "--cluster-from", EXAMPLES)


def test_a_migration_that_can_succeed() -> None:
    result = explain("shop/web", "--to", "zone=b")

    assert result.exit_code == 0
    assert (
        result.output
        == """\
1 of 6 nodes is eligible: node-3
shop/web runs on node-1; the migration adds zone=b.

Not eligible, some for several reasons:
  2  without zone=b (added by this migration)
       node-1, node-2
  1  without cpu-vendor.node.kubevirt.io/Intel=true (required by the CPU that the VM runs on now)
       node-6
  1  where the VM runs now
       node-1
  1  with the taint dedicated=database:NoSchedule
       node-5
  1  cordoned
       node-4

KubeVirt by itself would do the same: go to that node.
What would help most: remove the taint dedicated=database:NoSchedule, or have the VM tolerate it (1
node more: node-5).
"""
    )


def test_a_migration_that_kubevirt_would_send_elsewhere() -> None:
    result = explain("db", "-n", "shop", "--to", "zone=b")

    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "no node is eligible: zone=b was added by this migration; the VM itself requires zone=a"
    assert "KubeVirt by itself would drop zone=b without a word, and migrate to node-2." in lines
    assert "What would help most: take zone=a out of the VM's nodeSelector (1 node more: node-3)." in lines
    assert "Contradiction" not in result.output, "the first line has said it"


def documented() -> list[tuple[str, str]]:
    """The commands of the page, with the output that it shows."""
    page = (EXAMPLES.parents[1] / "docs" / "migration.md").read_text()
    blocks: list[tuple[str, str]] = re.findall(
        r"```console\n\$ kubevirt-webhook (explain [^\n]+)\n(.*?)```", page, re.DOTALL
    )
    return blocks


def test_the_page_shows_what_it_says() -> None:
    assert len(documented()) == 3
    for command, output in documented():
        arguments = command.replace("examples/cluster", str(EXAMPLES)).split()
        assert run(*arguments).output == output


def test_one_node() -> None:
    result = explain("shop/web", "--to", "zone=a", "--node", "node-6")

    assert result.exit_code == 1
    assert (
        result.output
        == """\
node-6 is not eligible
shop/web runs on node-1; the migration adds zone=a.
  - zone=a was added by this migration; the node has zone=b
  - the CPU that the VM runs on now requires cpu-vendor.node.kubevirt.io/Intel=true; the node has no
    label cpu-vendor.node.kubevirt.io/Intel
Of all: 1 of 6 nodes is eligible: node-2.
"""
    )
    fitting = explain("shop/web", "--node", "node-2")
    assert fitting.exit_code == 0
    assert fitting.output.startswith("node-2 is eligible\nshop/web runs on node-1; the migration adds nothing.\n")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_tools(output: str) -> None:
    result = explain("shop/db", "--to", "zone=b", "-o", output)
    read: Any = json.loads(result.output) if output == "json" else yaml.safe_load(result.output)

    assert result.exit_code == 1
    assert read["schema"] == SCHEMA
    assert read["addedNodeSelector"] == {"zone": "b"}
    assert read["kubevirt"]["drops"] == ["zone=b"]
    assert msgspec.convert(read, MigrationExplanation).eligible.names == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shop/web", "--to", "zone"], '--to: "zone" is no KEY=VALUE; write for example zone=b'),
        (["shop/web", "--to", "zone=not a label!"], 'the value "not a label!" of "zone" has other characters'),
        (["shop/web", "--node", "node-9"], "there is no node node-9"),
        (["shop/nope"], "there is no VirtualMachine shop/nope"),
        (["web"], "there is no VirtualMachine default/web"),
        (["shop/archive"], "the VM shop/archive isn't running (Stopped), so there is nothing to migrate"),
        (["shop/web", "-n", "lab"], 'it names the namespace "shop" and -n "lab"; drop one'),
        (["a/b/c"], '"a/b" is no name of a namespace'),
        (["shop/"], '"" is no name of a VM'),
        (["shop/Web"], '"Web" is no name of a VM'),
        (["shop/web", "--kubeconfig", "x"], "facts come from files or from a cluster, not from both"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_can_not_be_told_is_one_sentence(arguments: list[str], said: str) -> None:
    result = explain(*arguments)

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=10), st.text(max_size=20), st.text(max_size=10))
def test_whatever_is_asked_is_answered(vm: str, selector: str, name: str) -> None:
    result = explain(f"--to={selector}", f"--node={name}", "--", vm)

    assert result.exit_code in (0, 1, 2)
    assert not result.stderr or result.stderr.startswith(("Error: ", "Usage: "))


def directory(tmp_path: Path, *objects: Any) -> Path:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    return tmp_path


def whole(kind: str, obj: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind} | obj


def test_everything_there_is_to_say(tmp_path: Path) -> None:
    stuck = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    near: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    found = vmi({"zone": "a"}, affinity={"podAffinity": near})
    found["status"]["conditions"] = [stuck]
    nodes = [whole("Node", node(name, "a")) for name in ("node-a1", "node-a2")]
    cluster = directory(tmp_path, whole("VirtualMachineInstance", found, "kubevirt.io/v1"), *nodes)
    result = run("explain", "migration", "demo/web01", "--cluster-from", cluster)

    assert result.exit_code == 1
    assert (
        result.output
        == """\
1 of 2 nodes is eligible: node-a2
demo/web01 runs on node-a1; the migration adds nothing.
But KubeVirt refuses to migrate this VM at all: DisksNotLiveMigratable.

Not eligible:
  1  where the VM runs now
       node-a1

KubeVirt by itself would do the same: go to that node.
Note: the VM must be near other pods, which is not judged here.
Not taken into account: the VM's present pod isn't known, nor are requirements that only it shows.
"""
    )


def test_more_than_one_contradiction(tmp_path: Path) -> None:
    found = vmi({"zone": "a", "disk": "ssd"})
    cluster = directory(tmp_path, whole("VirtualMachineInstance", found, "kubevirt.io/v1"))
    asked: list[str | Path] = ["--to", "zone=b", "--to", "disk=hdd", "--cluster-from", cluster]
    output = run("explain", "migration", "demo/web01", *asked).output

    assert output.startswith("no node is eligible: the cluster has no nodes\n")
    assert "Contradiction: zone=b was added by this migration; the VM itself requires zone=a.\n" in output
    assert "Contradiction: disk=hdd was added by this migration; the VM itself requires disk=ssd.\n" in output
    assert "Not eligible" not in output


def test_of_many_reasons_the_largest_are_told(tmp_path: Path) -> None:
    nodes = [node(f"n{number}", "a") for number in range(30)]
    for each in nodes:
        each["spec"]["taints"] = [{"key": "only-for", "value": each["metadata"]["name"], "effect": "NoSchedule"}]
    objects = [{"apiVersion": "v1", "kind": "Node", **each} for each in nodes]
    objects.append({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi()})
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))

    result = run("explain", "migration", "demo/web01", "--to", "zone=b", "--cluster-from", tmp_path)

    assert result.exit_code == 1
    assert "\n  30  without zone=b (added by this migration)\n" in result.output
    assert result.output.count("with the taint only-for=") == 19
    assert "\n  and 11 more reasons, each for as many nodes or fewer; -o json has all.\n" in result.output


def test_a_ticket_is_a_hundred_columns_wide(tmp_path: Path) -> None:
    nodes = [whole("Node", node(f"worker-{number:04}.example.com", "a")) for number in range(2000)]
    cluster = directory(tmp_path, whole("VirtualMachineInstance", vmi(), "kubevirt.io/v1"), *nodes)
    for to in ("zone=a", "zone=b"):
        output = run("explain", "migration", "demo/web01", "--to", to, "--cluster-from", cluster).output
        assert len(output.splitlines()) < 20
        assert max(map(len, output.splitlines())) <= 100
        assert "\x1b" not in output


def test_control_characters_are_shown_not_obeyed(tmp_path: Path) -> None:
    found = vmi()
    found["status"]["conditions"] = [{"type": "LiveMigratable", "status": "False", "message": "\x1b[31mred"}]
    cluster = directory(tmp_path, whole("VirtualMachineInstance", found, "kubevirt.io/v1"))
    output = run("explain", "migration", "demo/web01", "--cluster-from", cluster).output

    assert "\x1b" not in output
    assert r"\x1b[31mred" in output


@contextmanager
def api_server() -> Iterator[FakeApiServer]:
    """In a thread: the command has a loop of its own."""
    server, loop, started = FakeApiServer(), asyncio.new_event_loop(), threading.Event()
    put(server)
    end = asyncio.Event()

    async def serve() -> None:
        async with running(server):
            started.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_a_running_cluster(tmp_path: Path) -> None:
    with api_server() as server:
        config = server.kubeconfig(tmp_path / "config")
        result = run("explain", "migration", "demo/web01", "--kubeconfig", config)
        verbs = {asked.verb for asked in server.asked}
        server.fail("/api/v1/nodes", 403)
        forbidden = run("explain", "migration", "demo/web01", "--kubeconfig", config)

    assert result.exit_code == 0
    assert result.output.startswith("1 of 3 nodes is eligible: node-a2\n")
    assert '1  outside the node affinity of the PersistentVolume of the volume "data"\n' in result.output
    assert "Not taken into account" not in result.output
    assert verbs == {"get"}, "nothing is watched"
    assert forbidden.exit_code == 2
    assert forbidden.stderr == (
        "Error: the nodes can't be read: the API server refused with 403: grant list on nodes; "
        "check the kubeconfig and its rights\n"
    )
