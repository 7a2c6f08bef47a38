from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result

from tests.cli.runner import EXAMPLES, Ended, Refused, run
from tests.cluster.fake_apiserver import FakeApiServer
from tests.golden_files import Golden
from webhook.cluster import selection
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey, ObjectKey, VmiKey
from webhook.forecast.requests import _WithVmi
from webhook.forecast.vm import VM_SCHEMA, VmExplanation
from webhook.placement.machines import VMIS
from webhook.settings.file import default_settings

CLUSTER = EXAMPLES / "cluster"
SECRET = "hunter2hunter2"
MEMORY = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}


def explain(*arguments: str | Path, cluster: Path = CLUSTER) -> Result:
    return run("explain", "vm", *arguments, "--cluster-from", cluster)


def explained(*arguments: str | Path, cluster: Path = CLUSTER) -> VmExplanation:
    return msgspec.convert(json.loads(explain(*arguments, "-o", "json", cluster=cluster).output), VmExplanation)


def vm(name: str, namespace: str, template: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runStrategy": "Always", "template": {"spec": template or {"domain": {"devices": {}}}}, **spec},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., Path]:
    def make(*objects: dict[str, Any]) -> Path:
        for file in CLUSTER.glob("*.yaml"):
            (tmp_path / file.name).write_text(file.read_text())
        (tmp_path / "more.yaml").write_text(yaml.safe_dump_all(objects))
        return tmp_path

    return make


@pytest.mark.parametrize("name", ["shop/web", "shop/archive", "shop/legacy-db"])
def test_what_is_told_of_a_vm(name: str, golden: Golden) -> None:
    result = explain(name)
    assert (result.exit_code, max(map(len, result.output.splitlines())) <= 110) == (0, True)
    golden(result.output)


def test_for_programs() -> None:
    result = explain("web", "-n", "shop", "-o", "json")
    read = json.loads(result.output)
    found = msgspec.convert(read, VmExplanation)
    assert (result.exit_code, found.schema) == (0, VM_SCHEMA)
    assert (found.scheduler, found.running_on) == ("kubevirt", "node-1")
    assert read["migration"]["eligible"]["names"] == ["node-2", "node-3"]


def test_every_request_of_its_life_is_told_in_order() -> None:
    found = explained("shop/web")

    assert [(request.kind, [each.policy for each in request.policies]) for request in found.requests] == [
        ("VirtualMachine", ["scheduling"]),
        ("VirtualMachineInstance", ["scheduling"]),
        ("Pod", ["scheduling", "migration"]),
        ("VirtualMachineInstanceMigration", ["migration", "migration"]),
        ("Eviction", ["eviction"]),
    ]


def test_defaults_of_the_namespace(cluster: Callable[..., Path]) -> None:
    found = explained("apps/new", cluster=cluster(vm("new", "apps")))
    fields = {field.path: (field.origin, field.name) for field in found.fields}

    assert [(each.role, each.name, each.injected) for each in found.named] == [
        ("instancetype", "u1.medium", True),
        ("preference", "linux", True),
    ]
    assert fields["spec.domain.memory.guest"] == ("instancetype", "u1.medium")
    assert fields["spec.domain.features.smm.enabled"] == ("preference", "linux")
    assert fields["spec.evictionStrategy"] == ("cluster settings", "")
    assert fields["spec.domain.machine.type"] == ("KubeVirt default", "")
    assert found.scheduler == "default-scheduler"


def origins(found: VmExplanation, path: str) -> set[str]:
    return {field.origin for field in found.fields if field.path == path}


def test_an_owners_choice_is_not_called_ours(cluster: Callable[..., Path]) -> None:
    own = vm("own", "apps", instancetype={"name": "u1.medium"})
    directory = cluster(own, vm("scheduled", "shop", {**MEMORY, "schedulerName": "mine"}))
    found, theirs, ours = (explained(name, cluster=directory) for name in ("apps/own", "shop/scheduled", "shop/web"))
    assert [(each.role, each.injected) for each in found.named] == [("instancetype", False), ("preference", True)]
    assert (theirs.scheduler, origins(theirs, "spec.schedulerName")) == ("mine", {"vm"})
    assert origins(ours, "spec.schedulerName") == {"kubevirt-webhook"}


def test_a_vm_that_exists_is_told_as_it_is(cluster: Callable[..., Path]) -> None:
    """The command reports what a policy would add to the VM if it were created now, but its VMI has none of it."""
    exists = vm("old", "apps", MEMORY)
    exists["metadata"]["uid"] = "6b0f3a52-0f4e-4b58-8a3c-000000000099"
    found = explained("apps/old", cluster=cluster(exists))
    assert (found.named, origins(found, "spec.domain.memory.guest")) == ((), {"vm"})


def test_what_a_policy_denies(cluster: Callable[..., Path]) -> None:
    bad = cluster(vm("bad", "apps", instancetype={"name": "x9"}))
    found = explained("apps/bad", cluster=bad)
    codes = [reason.code for each in found.requests[0].policies for reason in each.reasons]
    assert (bool(found.denial), codes[-1]) == (True, "instancetype-not-allowed")
    assert explain("apps/bad", cluster=bad).exit_code == 1


def test_what_kubevirt_denies(cluster: Callable[..., Path], ended: Ended) -> None:
    conflicting = vm("bad", "legacy", MEMORY, instancetype={"name": "u1.medium"})
    ended(explain("legacy/bad", cluster=cluster(conflicting)), 1)


def test_secrets_are_not_printed(cluster: Callable[..., Path]) -> None:
    seed = {"name": "seed", "cloudInitNoCloud": {"userData": f"#cloud-config\npassword: {SECRET}\n"}}
    secret = cluster(vm("seeded", "shop", {**MEMORY, "volumes": [seed]}))
    for output in ("text", "json", "yaml"):
        printed = explain("shop/seeded", "-o", output, cluster=secret).output
        assert ("seed" in printed, SECRET in printed) == (True, False)


@pytest.mark.parametrize(
    "arguments", [["shop/nope"], ["a/b/c"], ["shop/web", "-n", "lab"], ["shop/web", "--kubeconfig", "x"]]
)
def test_bad_input_is_one_sentence(arguments: list[str], refused: Refused) -> None:
    refused(explain(*arguments))


async def test_a_vmi_that_is_yet_to_come() -> None:
    files = FilesCluster.load(CLUSTER, default_settings())
    coming = {"metadata": {"name": "new", "namespace": "shop", "uid": "u"}, "spec": {"schedulerName": "x"}}
    cluster = _WithVmi(files, coming)

    assert cluster.peek(VmiKey("shop", "new", "u")).spec.scheduler_name == "x"  # type: ignore[attr-defined]
    assert cluster.peek(ObjectKey(VMIS, "shop", "new")).meta.uid == "u"  # type: ignore[attr-defined]
    assert (await cluster.read(ObjectKey(VMIS, "shop", "new"), 0)).meta.uid == "u"  # type: ignore[union-attr]
    assert cluster.peek(ObjectKey(VMIS, "shop", "web")) == files.peek(ObjectKey(VMIS, "shop", "web"))
    assert await cluster.read(NodesKey(), 0) is files.peek(NodesKey())
    assert (cluster.staleness(), cluster.ages([NodesKey()]), cluster.waiting_for()) == ({}, {}, ())


def test_a_cluster_that_does_not_answer_is_exit_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_READY_SECONDS", 0.2)
    server = FakeApiServer()
    server.url = "http://127.0.0.1:1"

    result = run("explain", "vm", "shop/web", "--kubeconfig", server.kubeconfig(tmp_path / "config"))

    assert (result.exit_code, "the cluster did not answer within 0s" in result.stderr) == (3, True)
