from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result

from tests.cli.runner import EXAMPLES, Refused, run
from tests.forecast import clusters
from tests.golden_files import Golden
from webhook.forecast import loss_search
from webhook.forecast.loss_report import SCHEMA, LossPlan

LOSS = EXAMPLES / "loss"


def explain(*arguments: str | Path, cluster: Path = LOSS) -> Result:
    return run("explain", "loss", *arguments, "--cluster-from", cluster)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        *(("node-1", 1), ("node-3", 0), ("node-4", 0), ("node-1 node-3", 1)),
        *(("--any 1", 1), ("--any 2", 1), ("--zone", 1)),
        ("--node-selector topology.kubernetes.io/zone=b", 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_loss_leads_to(command: str, status: int, golden: Golden) -> None:
    result = explain(*command.split())
    assert (result.exit_code, max(map(len, result.output.splitlines())) <= 100) == (status, True)
    golden(result.output)


def test_a_plan_for_programs() -> None:
    result = explain("node-1", "-o", "json")
    found = msgspec.convert(json.loads(result.stdout), LossPlan)
    said = (result.exit_code, found.schema, found.nodes, found.starts, found.waits, found.stays_down)
    assert said == (1, SCHEMA, ("node-1",), 1, 2, 1)
    read = yaml.safe_load(explain("--any", "1", "-o", "yaml").stdout)
    found = msgspec.convert(read, LossPlan)
    assert (found.any_of, [each.nodes for each in found.failing]) == (1, [("node-1",), ("node-2",)])


def test_where_every_vm_starts_again(tmp_path: Path, golden: Golden) -> None:
    vms = [clusters.vm(name, "a") for name in ("web", "db", "by-hand")]
    owners = [
        clusters.owned(each, strategy) for each, strategy in zip(vms, ("Always", "Always", "Manual"), strict=True)
    ]
    objects = [whole("VirtualMachine", owner, "kubevirt.io/v1") for owner in owners]
    objects += [whole("VirtualMachineInstance", vmi, "kubevirt.io/v1") for vmi, _ in vms]
    objects += [whole("Pod", pod) for _, pod in vms] + [whole("Node", clusters.node(name)) for name in "abc"]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    for arguments in (["a"], ["--any", "1"], ["b"]):
        result = explain(*arguments, cluster=tmp_path)
        assert result.exit_code == 0
        golden(result.output)


def test_a_search_that_was_cut_off_does_not_say_that_every_vm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """What was not looked at may leave VMs down: that is not known, unless something else does."""
    zones: Any = {"topology.kubernetes.io/zone": "a"}
    vms = [clusters.vm(name, name, "5Gi") for name in "abc"]
    objects = [whole("VirtualMachine", clusters.owned(each), "kubevirt.io/v1") for each in vms]
    objects += [whole("VirtualMachineInstance", vmi, "kubevirt.io/v1") for vmi, _ in vms]
    objects += [whole("Pod", pod) for _, pod in vms]
    objects += [whole("Node", clusters.node(name, **zones)) for name in "abc"]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    assert explain("--any", "1", cluster=tmp_path).exit_code == 1
    monkeypatch.setattr(loss_search, "_SEARCH_STEPS", 0)
    for arguments in (["--any", "1"], ["--zone"]):
        result = explain(*arguments, cluster=tmp_path)
        assert result.exit_code == 3
        golden(result.output)
        assert explain(*arguments, "-o", "html", cluster=tmp_path).exit_code == 3
    # With one step more than reading the cluster takes, one of the losses is looked at.
    for steps in range(1000):
        monkeypatch.setattr(loss_search, "_SEARCH_STEPS", steps)
        result = explain("--any", "1", "-o", "json", cluster=tmp_path)
        left_out = json.loads(result.stdout)["examined"]["leftOut"]
        if left_out < 3:
            break
    assert (result.exit_code, left_out) == (1, 2)


def whole(kind: str, obj: Any, version: str = "v1") -> Any:
    return {"apiVersion": version, "kind": kind, **obj}


def test_a_vm_whose_template_has_changed_starts_as_that_says(tmp_path: Path) -> None:
    shutil.copytree(LOSS, tmp_path / "loss")
    file = tmp_path / "loss" / "cluster.yaml"
    objects = list(yaml.safe_load_all(file.read_text()))
    for each in objects:
        if (each["kind"], each["metadata"]["name"]) == ("VirtualMachine", "web"):
            each["status"] = {"conditions": [{"type": "RestartRequired", "status": "True"}]}
            each["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "100Gi"
            changed = each
    file.write_text(yaml.safe_dump_all(objects))
    assert _web(tmp_path / "loss") == ("does-not-start", "no-eligible-node")
    changed["spec"]["instancetype"] = {"name": "none", "kind": "VirtualMachineInstancetype"}
    file.write_text(yaml.safe_dump_all(objects))
    assert _web(tmp_path / "loss") == ("does-not-start", "no-vmi")


def _web(cluster: Path) -> tuple[str, str]:
    found = msgspec.convert(json.loads(explain("node-1", "-o", "json", cluster=cluster).stdout), LossPlan)
    (web,) = (vm for vm in found.vms if vm.name == "web")
    return web.outcome, web.code


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "node-9", "node-1 node-1", "node-1 --any 1", "node-1 --zone", "--any 1 --zone"),
        *("--node-selector zone=z", "--node-selector zone", "--any 1 --node-selector zone=a"),
    ],
)
def test_bad_input_is_one_sentence(arguments: str, refused: Refused) -> None:
    refused(explain(*arguments.split()))


@pytest.mark.parametrize(("arguments", "value"), [("--any", "--cluster-from"), ("--any 3", "3"), ("--any one", "one")])
def test_a_number_that_is_none_is_quoted_with_those_that_there_are(arguments: str, value: str) -> None:
    done = explain(*arguments.split())

    assert done.exit_code == 2
    assert f"'--any': \"{value}\" is not a whole number from 1 to 2" in done.stderr
