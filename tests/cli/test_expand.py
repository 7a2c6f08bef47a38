from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.expanding import BOTH, CLUSTER, EXAMPLES, KUBEVIRT, MATCHED, example, expand
from tests.cli.runner import run
from tests.definitions import definition
from tests.kubevirt.samples import instancetype, preference, vm

SECRET = "hunter2"


class TestExamples:
    def test_named(self) -> None:
        result = example("named", "--explain")

        assert result.exit_code == 0
        assert result.stdout.splitlines()[:10] == [
            f"VirtualMachineInstance shop/till  from {EXAMPLES}/vms/named.yaml:3",
            "  instancetype  u1.medium, VirtualMachineClusterInstancetype",
            "  preference    linux, VirtualMachineClusterPreference",
            "  settings      KubeVirt kubevirt/kubevirt",
            "",
            "instancetype u1.medium  5 fields",
            "  spec.domain.resources.requests.memory = 3Gi  ← instancetype u1.medium",
            "  spec.domain.cpu.sockets               = 1    ← instancetype u1.medium",
            "  spec.domain.cpu.cores                 = 4    ← instancetype u1.medium",
            "  spec.domain.cpu.threads               = 1    ← instancetype u1.medium",
        ]
        assert "  spec.evictionStrategy = LiveMigrate  ← cluster settings" in result.stdout.splitlines()
        assert "not-shown" not in result.output

    def test_inferred(self, golden: Callable[[str], None]) -> None:
        told = json.loads(example("inferred", "--explain", "-o", "json").stdout)

        assert told["instancetype"] == {
            "kind": "VirtualMachineClusterInstancetype",
            "name": "u1.medium",
            "inferredFromVolume": "root",
        }
        by_path = {field["path"]: field for field in told["fields"]}
        assert by_path["spec.domain.devices.disks[0].disk.bus"]["origin"] == "vm"
        assert by_path["spec.domain.cpu.cores"] == {
            "path": "spec.domain.cpu.cores",
            "value": 4,
            "origin": "instancetype",
            "name": "u1.medium",
        }
        assert by_path["spec.domain.firmware.serial"]["random"] is True
        assert told["object"]["spec"]["domain"]["cpu"]["cores"] == 4
        golden(example("inferred", "--explain").stdout.replace(str(EXAMPLES), "EXAMPLES"))

    def test_conflicting(self, golden: Callable[[str], None]) -> None:
        result = example("conflicting")

        assert (result.exit_code, result.stdout) == (1, "")
        golden(result.stderr.replace(str(EXAMPLES), "EXAMPLES"))


def test_yaml_is_the_vmi_and_the_same_in_every_run() -> None:
    one, other = expand(*MATCHED), expand(*MATCHED)
    vmi = yaml.safe_load(one.stdout)

    assert vmi["kind"] == "VirtualMachineInstance"
    assert vmi["spec"]["domain"]["cpu"]["sockets"] == 2
    assert vmi["metadata"]["annotations"]["kubevirt.io/cluster-instancetype-name"] == "u1"
    assert one.stdout == other.stdout
    assert json.loads(expand(*MATCHED, options=("-o", "json")).stdout) == vmi


def test_machines_get_uuids_of_their_own() -> None:
    machines = [{**vm(), "metadata": {"name": name, "namespace": "demo"}} for name in ("a", "b")]
    firmware = [vmi["spec"]["domain"]["firmware"] for vmi in yaml.safe_load_all(expand(*machines).stdout)]

    assert len({value for entry in firmware for value in entry.values()}) == 4


def test_several_machines() -> None:
    other = vm(instancetype={"name": "none"})
    other["metadata"]["name"] = "other"
    result = expand(*MATCHED, other, options=("-o", "json"))

    assert result.exit_code == 1
    assert json.loads(result.stdout)["metadata"]["name"] == "vm"
    assert 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "none" not found' in result.stderr
    both = {**vm(), "metadata": {"name": "x"}}
    assert len(json.loads(expand(vm(), both, options=("-o", "json")).stdout)) == 2
    assert expand(vm(), both, options=("--explain",)).stdout.count("VirtualMachineInstance") == 2


def test_mode_expand_is_the_vm_itself() -> None:
    result = expand(*MATCHED, options=("--mode", "expand"))
    expanded = yaml.safe_load(result.stdout)

    assert expanded["kind"] == "VirtualMachine"
    assert not expanded["spec"].keys() & {"instancetype", "preference"}
    assert expanded["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "4Gi"
    text = expand(*MATCHED, options=("--mode", "expand", "--explain")).stdout
    assert "  spec.template.spec.domain.cpu.sockets  = 2    ← instancetype u1" in text


def test_mode_expand_infers_nothing_and_says_so(golden: Callable[[str], None]) -> None:
    result = expand(vm(preference={"inferFromVolume": "v"}), options=("--mode", "expand"))

    assert result.exit_code == 1
    assert 'virtualmachineclusterpreferences.instancetype.kubevirt.io "" not found' in result.stderr
    golden(result.stderr)


def test_what_is_missing_is_said_in_kubevirts_words(golden: Callable[[str], None]) -> None:
    result = expand(BOTH)

    assert result.exit_code == 1
    assert 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1" not found' in result.stderr
    golden(result.stderr)
    assert "--cluster-from DIR" in result.stderr
    assert "--cluster-from" not in expand(BOTH, options=tuple(CLUSTER)).stderr


def test_all_causes_are_listed() -> None:
    domain = {
        "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": "m", "dedicatedCpuPlacement": True, "numa": {}},
        "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}},
        "memory": {"guest": "1Gi"},
        "ioThreadsPolicy": "auto",
        "devices": {"gpus": [{"name": "g", "deviceName": "d"}], "hostDevices": [{"name": "g", "deviceName": "d"}]},
    }
    wanted = instancetype(
        cpu={"guest": 1, "model": "m", "dedicatedCPUPlacement": True, "numa": {}},
        ioThreadsPolicy="auto",
        gpus=[{"name": "g", "deviceName": "d"}],
        hostDevices=[{"name": "g", "deviceName": "d"}],
    )
    machine = vm({"domain": domain}, instancetype={"name": "u1"})
    lines = expand(machine, wanted).stderr.splitlines()
    expanded = expand(machine, wanted, options=("--mode", "expand")).stderr.splitlines()

    assert len(lines) == 12
    assert lines[-1] == "  - and 2 more validation errors"
    assert len(expanded) == 14
    assert expanded[1].startswith("  VM field(s) spec.template.spec.domain.resources.requests.cpu, ")


def test_a_cause_with_its_field(golden: Callable[[str], None]) -> None:
    golden(expand(vm(instancetype={"kind": "x"})).stderr)


def test_a_vmi_gets_defaults_only(golden: Callable[[str], None]) -> None:
    vmi = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "annotations": {"kubevirt.io/cluster-instancetype-name": "u1"}},
        "spec": {"domain": {"memory": {"guest": "1Gi"}}},
    }
    shown = yaml.safe_load(expand(vmi, instancetype()).stdout)

    assert shown["spec"]["domain"]["cpu"]["sockets"] == 1
    assert shown["spec"]["domain"]["memory"]["guest"] == "1Gi"
    assert "\nvmi  2 fields\n" in expand(vmi, options=("--explain",)).stdout
    told = json.loads(expand(vmi, options=("--explain", "-o", "json")).stdout)
    assert {field["origin"] for field in told["fields"]} == {"vmi", "KubeVirt default", "cluster settings"}
    refused = expand(vmi, options=("--mode", "expand"))
    assert refused.exit_code == 2
    golden(refused.stderr)


def test_the_clusters_settings(golden: Callable[[str], None]) -> None:
    text = expand(vm(), KUBEVIRT, options=("--explain",)).stdout
    early = expand(vm(), {**KUBEVIRT, "status": {}}, options=("--explain",)).stdout

    assert "  settings      KubeVirt kubevirt/kubevirt\n" in text
    assert "spec.domain.cpu.model = Haswell  ← cluster settings" in text
    assert "Haswell" not in early
    golden(early)
    assert "  settings      KubeVirt's defaults\n" in expand(vm(), options=("--explain",)).stdout


def test_a_captured_revision_is_told() -> None:
    stored = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "r",
            "namespace": "demo",
            "labels": {"instancetype.kubevirt.io/object-version": "v1beta1"},
        },
        "data": instancetype(cpu={"guest": 8}),
    }
    machine = vm(instancetype={"name": "u1", "revisionName": "r"})
    text = expand(machine, stored, options=("--explain",)).stdout
    told = json.loads(expand(machine, stored, options=("--explain", "-o", "json")).stdout)

    assert "in ControllerRevision r" in text
    assert told["instancetype"]["controllerRevision"] == "r"


def secretive() -> dict[str, Any]:
    volumes = [
        {"name": "a", "cloudInitNoCloud": {"userData": f"password: {SECRET}", "networkData": SECRET}},
        {"name": "b", "cloudInitConfigDrive": {"userDataBase64": SECRET}},
        {"name": "s", "sysprep": {"secret": {"name": "unattend"}}},
    ]
    machine = vm(
        {"volumes": volumes, "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Cookie", "value": SECRET}]}}}
    )
    notes = {"kubevirt.io/ignitiondata": SECRET, "note": f"ssh-rsa AAAA{SECRET}", "x/admin-password": SECRET}
    machine["spec"]["template"]["metadata"] = {"annotations": notes}
    machine["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    return machine


@pytest.mark.parametrize("mode", ["reference", "expand"])
def test_secrets_are_shown_only_on_request(mode: str) -> None:
    for options in ((), ("-o", "json"), ("--explain",), ("--explain", "-o", "json"), ("--explain", "-o", "yaml")):
        result = expand(secretive(), options=("--mode", mode, *options))
        assert result.exit_code == 0
        assert SECRET not in result.output, options
    result = expand(secretive(), options=("--mode", mode))
    assert "--show-secrets" in result.stderr
    whole = expand(secretive(), options=("--mode", mode, "--show-secrets"))
    assert whole.stdout.count(SECRET) == (8 if mode == "expand" else 7)
    assert whole.stderr == ""


def test_secrets_are_not_shown_by_refusals() -> None:
    machine = secretive()
    machine["spec"]["instancetype"] = {"name": "none"}

    assert SECRET not in expand(machine).output


def test_control_characters_are_shown_not_obeyed() -> None:
    machine = vm({"hostname": "a\x1b[31mb"})
    machine["spec"]["template"]["metadata"] = {"labels": {"x\x1b[2J": "y"}}
    stdin = json.dumps(machine)
    output = run("expand", "-f", "-", "--explain", stdin=stdin).output

    assert "\x1b" not in output


def test_the_docs_show_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    docs = Path("docs/expand.md").read_text()
    for name, *options in (("inferred", "--explain"), ("conflicting",)):
        command = f"expand -f examples/vms/{name}.yaml --cluster-from examples/cluster {' '.join(options)}".strip()
        assert f"$ kubevirt-webhook {command}\n{run(*command.split()).output}" in docs


class TestKubeVirtVersions:
    PANIC = (vm(preference={"name": "linux"}), preference(devices={"preferredPanicDeviceModel": "isa"}))

    def panics(self, *options: str, objects: tuple[Any, ...] = ()) -> bool:
        result = expand(*self.PANIC, *objects, options=options)
        assert result.exit_code == 0
        return "panicDevices" in yaml.safe_load(result.stdout)["spec"]["domain"]["devices"]

    def test_the_option(self) -> None:
        assert self.panics("--kubevirt-version", "1.9")
        assert not self.panics("--kubevirt-version=v1.8.4")
        assert self.panics()

    def test_the_kubevirt_object_and_the_option_before_it(self) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.7.4", "targetKubeVirtVersion": "v1.7.4"}
        older = {**KUBEVIRT, "status": status}

        assert not self.panics(objects=(older,))
        assert self.panics("--kubevirt-version", "1.9", objects=(older,))

    @pytest.mark.parametrize("version", ["", "latest", "1.5", "4.19"])
    def test_what_is_not_a_known_release(self, version: str) -> None:
        result = expand(*self.PANIC, options=("--kubevirt-version", version))

        assert result.exit_code == 2
        assert "--kubevirt-version: " in result.stderr

    def test_a_field_that_the_release_does_not_know_is_reported(self) -> None:
        objects = (vm(preference={"name": "linux"}), preference(preferredArchitecture="arm64"))

        older, newer = (expand(*objects, options=("--kubevirt-version", version)) for version in ("1.6", "1.7"))

        assert "spec.preferredArchitecture" in older.stderr
        assert (yaml.safe_load(older.stdout)["spec"]["architecture"], older.exit_code) == ("amd64", 0)
        assert (yaml.safe_load(newer.stdout)["spec"]["architecture"], newer.stderr) == ("arm64", "")

    def test_definitions_among_the_files_say_what_is_known(self) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0", "targetKubeVirtVersion": "v1.9.0"}
        preferred = preference(preferredArchitecture="arm64")
        objects = (vm(preference={"name": "linux"}), preferred, {**KUBEVIRT, "status": status})
        lacking = definition(preferred["kind"], ["preferredArchitecture"])

        assert yaml.safe_load(expand(*objects).stdout)["spec"]["architecture"] == "arm64"
        result = expand(*objects, lacking)
        assert "spec.preferredArchitecture" in result.stderr
        assert yaml.safe_load(result.stdout)["spec"]["architecture"] == "amd64"
        # The option asks for a release as it is by itself.
        chosen = expand(*objects, lacking, options=("--kubevirt-version", "1.9"))
        assert yaml.safe_load(chosen.stdout)["spec"]["architecture"] == "arm64"

    def test_a_definition_that_is_none_is_one_sentence(self, golden: Callable[[str], None]) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0"}
        broken = {**definition("VirtualMachine"), "spec": {"versions": 7}}

        result = expand(vm(), {**KUBEVIRT, "status": status}, broken)

        assert result.exit_code == 2
        golden(result.stderr)
