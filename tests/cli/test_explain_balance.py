from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import Result

from tests.cli.runner import EXAMPLES, Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.forecast import clusters
from tests.forecast.clusters import Json
from tests.golden_files import Golden
from webhook.cli.explain import LISTS
from webhook.forecast.balance_report import SCHEMA, BalancePlan
from webhook.forecast.snapshot import RUNNING_PODS
from webhook.forecast.usage import NODE_METRICS, POD_METRICS
from webhook.k8s.resources import CONFIG_MAPS, NODES
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS

DRAIN = EXAMPLES / "drain"


def explain(*arguments: str | Path, cluster: Path = DRAIN) -> Result:
    return run("explain", "balance", *arguments, "--cluster-from", cluster)


@pytest.mark.parametrize(
    ("command", "status"),
    [("", 1), ("--target 20", 0), ("--target 50%", 0), ("--max-moves 1", 1), ("--nodes node-1,node-2", 1)],
)
def test_what_balances_nodes(command: str, status: int, golden: Golden) -> None:
    result = explain(*command.split())
    assert (result.exit_code, max(map(len, result.output.splitlines())) <= 100) == (status, True)
    golden(result.output)


def test_a_plan_for_programs() -> None:
    found = msgspec.convert(json.loads(explain("-o", "json").stdout), BalancePlan)
    assert (found.schema, found.target, len(found.moves)) == (SCHEMA, 10.0, 3)


def test_migrations_as_objects() -> None:
    made = list(yaml.safe_load_all(explain("-o", "yaml").stdout))
    assert [each["spec"]["vmiName"] for each in made] == ["queue", "web", "cart-1"]
    assert {each["kind"] for each in made} == {"VirtualMachineInstanceMigration"}
    nothing = explain("--target", "90", "-o", "yaml")
    assert (nothing.exit_code, nothing.stdout.strip()) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        "--target much",
        "--nodes node-9",
        "--nodes ,",
        "--nodes node-4",
        "--bandwidth 0",
        "--run",
        "--cool-down soon",
        "--prometheus ftp://x",
        "--prometheus http://x --by requests",
    ],
)
def test_bad_input_is_one_sentence(arguments: str, refused: Refused) -> None:
    refused(explain(*arguments.split()))


@contextmanager
def api_server(vms: int) -> Iterator[FakeApiServer]:
    """A cluster of two nodes, with so many VMs on the first."""
    server = FakeApiServer()
    for resource in (*(resource for resource, _ in LISTS.values()), NODE_METRICS, POD_METRICS):
        server.serve(resource)
    for name in "ab":
        server.put(NODES, name, **clusters.node(name, cpu="80"))
    for number in range(vms):
        vmi, pod = clusters.vm(f"vm-{number}", "a", evictionStrategy="LiveMigrate")
        server.put(PLACED_VMIS, f"vm-{number}", "shop", **vmi)
        server.put(RUNNING_PODS, pod["metadata"]["name"], "shop", **pod)
    with in_thread(running(server)):
        yield server


def test_migrations_are_made(tmp_path: Path) -> None:
    def made(config: str, *more: str) -> Result:
        return run("explain", "balance", "--run", "--kubeconfig", config, *more)

    with api_server(vms=1) as server:
        nothing = made(server.kubeconfig(tmp_path / "config"))
        assert (nothing.exit_code, {each.verb for each in server.asked} - {"get", "list"}) == (0, set())
    with api_server(vms=4) as server:
        config = server.kubeconfig(tmp_path / "config")
        assert made(config, "-o", "yaml").exit_code == 2
        server.fail(MIGRATIONS.path("shop"), 403, verb="post")
        denied = made(config)
        assert (denied.exit_code, denied.stdout) == (1, "")
        server.fail(NODES.path(), 403)
        assert made(config).exit_code == 3
        server.heal()
        server.fail(CONFIG_MAPS.path("kubevirt-webhook", "kubevirt-webhook"), 500, times=9)
        assert made(config).exit_code == run("explain", "balance", "--kubeconfig", config).exit_code == 3


# As metrics-server writes it. What node-2 and most VMs use is not known: it did not reach them.
NODES_USE: Mapping[str, Json] = {
    "node-1": {"cpu": "9249872534n", "memory": "20971520Ki"},
    "node-3": {"cpu": "149872534n", "memory": "12582912Ki"},
}
WEB_USES: Json = {"cpu": "7104893391n", "memory": "3565158Ki"}


def with_metrics(directory: Path) -> Path:
    """The example with what metrics-server says of it."""
    shutil.copytree(DRAIN, directory / "cluster")
    head: Json = {"timestamp": "2026-11-29T16:00:07Z", "window": "20.064s"}
    nodes = [{"metadata": {"name": name}, **head, "usage": usage} for name, usage in NODES_USE.items()]
    web = {"metadata": {"name": "virt-launcher-web-x01", "namespace": "shop"}, **head}
    web["containers"] = [{"name": "compute", "usage": WEB_USES}]
    for kind, items in (("NodeMetrics", nodes), ("PodMetrics", [web])):
        listed = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": f"{kind}List", "items": items}
        (directory / f"cluster/{kind}.json").write_text(json.dumps(listed))
    return directory / "cluster"


def test_by_usage(tmp_path: Path, golden: Golden) -> None:
    result = explain("--by", "usage", cluster=with_metrics(tmp_path))
    assert result.exit_code in (0, 1)
    golden(result.output)


def test_usage_is_read_from_the_api_server(tmp_path: Path) -> None:
    """One node requests as much as the other and uses far more."""
    usage = {"a": {"cpu": "3101834554n", "memory": "5242880Ki"}, "b": {"cpu": "12489145n", "memory": "204800Ki"}}
    with api_server(vms=4) as server:
        config = server.kubeconfig(tmp_path / "config")
        unserved = run("explain", "balance", "--by", "usage", "--kubeconfig", config, "-o", "json")
        assert "The usage of 2 nodes is not known" in json.loads(unserved.stdout)["notes"][0]
        for name, used in usage.items():
            server.put(NODE_METRICS, name, usage=used, window="15.1s")
        for number in range(4):
            pod = {"name": "compute", "usage": {"cpu": "775458638n", "memory": "1310720Ki"}}
            server.put(POD_METRICS, f"virt-launcher-vm-{number}", "shop", containers=[pod], window="15.1s")
        found = json.loads(run("explain", "balance", "--by", "usage", "--kubeconfig", config, "-o", "json").stdout)
        assert (found["by"], len(found["moves"]), found["notes"]) == ("usage", 2, [])
        server.fail(NODE_METRICS.path(), 403)
        denied = json.loads(run("explain", "balance", "--by", "usage", "--kubeconfig", config, "-o", "json").stdout)
        assert any("what nodes use is not known" in gap for gap in denied["gaps"])
        server.heal()
