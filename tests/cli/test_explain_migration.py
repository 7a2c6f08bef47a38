from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
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


def test_a_migration_that_can_succeed(golden: Callable[[str], None]) -> None:
    result = explain("shop/web", "--to", "zone=b")

    assert result.exit_code == 0
    golden(result.output)


def test_a_migration_that_kubevirt_would_send_elsewhere(golden: Callable[[str], None]) -> None:
    result = explain("db", "-n", "shop", "--to", "zone=b")

    assert result.exit_code == 1
    golden(result.output)
    contradictions = re.findall("Contradiction: .*(?:\n.*[^.])*", result.output)
    assert ["volume" in each for each in contradictions] == [True], "the first line has said the other"


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


def test_one_node(golden: Callable[[str], None]) -> None:
    result = explain("shop/web", "--to", "zone=a", "--node", "node-6")

    assert result.exit_code == 1
    golden(result.output)
    fitting = explain("shop/web", "--node", "node-2")
    assert fitting.exit_code == 0
    golden(fitting.output)


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
    "arguments",
    [
        ["shop/web", "--to", "zone"],
        ["shop/web", "--to", "zone=not a label!"],
        ["shop/web", "--node", "node-9"],
        ["shop/nope"],
        ["web"],
        ["shop/archive"],
        ["shop/web", "-n", "lab"],
        ["a/b/c"],
        ["shop/"],
        ["shop/Web"],
        ["shop/web", "--kubeconfig", "x"],
    ],
    ids=" ".join,
)
def test_what_can_not_be_told_is_one_sentence(arguments: list[str], golden: Callable[[str], None]) -> None:
    result = explain(*arguments)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    golden(result.stderr)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=10), st.text(max_size=20), st.text(max_size=10))
def test_whatever_is_asked_is_answered(vm: str, selector: str, name: str) -> None:
    result = explain(f"--to={selector}", f"--node={name}", "--", vm)

    assert result.exit_code in (0, 1, 2)
    assert not result.stderr or result.stderr.startswith(("Error: ", "Usage: "))


def directory(tmp_path: Path, *objects: Any) -> Path:
    # JSON is YAML, and of thousands of nodes it is written in no time.
    (tmp_path / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    return tmp_path


def whole(kind: str, obj: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind} | obj


def test_everything_there_is_to_say(tmp_path: Path, golden: Callable[[str], None]) -> None:
    stuck = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    near: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    found = vmi({"zone": "a"}, affinity={"podAffinity": near})
    found["status"]["conditions"] = [stuck]
    nodes = [whole("Node", node(name, "a")) for name in ("node-a1", "node-a2")]
    cluster = directory(tmp_path, whole("VirtualMachineInstance", found, "kubevirt.io/v1"), *nodes)
    result = run("explain", "migration", "demo/web01", "--cluster-from", cluster)

    assert result.exit_code == 1
    golden(result.output)


def test_more_than_one_contradiction(tmp_path: Path, golden: Callable[[str], None]) -> None:
    found = vmi({"zone": "a", "disk": "ssd"})
    cluster = directory(tmp_path, whole("VirtualMachineInstance", found, "kubevirt.io/v1"))
    asked: list[str | Path] = ["--to", "zone=b", "--to", "disk=hdd", "--cluster-from", cluster]
    output = run("explain", "migration", "demo/web01", *asked).output

    assert output.count("\nContradiction: ") == 2
    assert "Not eligible" not in output
    golden(output)


def test_of_many_reasons_the_largest_are_told(tmp_path: Path) -> None:
    nodes = [node(f"n{number}", "a") for number in range(30)]
    for each in nodes:
        each["spec"]["taints"] = [{"key": "only-for", "value": each["metadata"]["name"], "effect": "NoSchedule"}]
    objects = [{"apiVersion": "v1", "kind": "Node", **each} for each in nodes]
    objects.append({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi()})
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))

    result = run("explain", "migration", "demo/web01", "--to", "zone=b", "--cluster-from", tmp_path)

    assert result.exit_code == 1
    assert re.search(r"^  30  .*zone=b", result.output, re.MULTILINE)
    assert result.output.count(" only-for=") == 19
    assert "\n  and 11 more reasons; -o json shows all.\n" in result.output


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


def test_a_running_cluster(tmp_path: Path, golden: Callable[[str], None]) -> None:
    with api_server() as server:
        config = server.kubeconfig(tmp_path / "config")
        result = run("explain", "migration", "demo/web01", "--kubeconfig", config)
        verbs = {asked.verb for asked in server.asked}
        server.fail("/api/v1/nodes", 403)
        forbidden = run("explain", "migration", "demo/web01", "--kubeconfig", config)

    assert result.exit_code == 0
    assert "Not evaluated" not in result.output
    golden(result.output)
    assert verbs == {"get"}, "nothing is watched"
    assert forbidden.exit_code == 2
    golden(forbidden.stderr)
