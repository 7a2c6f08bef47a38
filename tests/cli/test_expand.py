"""`expand` with a cluster: what it reads, and as whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.cli.runner import EXAMPLES, Command, Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.definitions import definition
from tests.golden_files import Golden
from tests.kubevirt import samples
from tests.kubevirt.samples import WHOLE, among, anything, instancetype, preference, replaced, revision
from webhook.admission.redaction import redact
from webhook.cli.expand import Explanation, _text
from webhook.cli.main import main
from webhook.cluster.reader import RESOURCES
from webhook.install.stored_settings import NAME
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.resources import CONFIG_MAPS
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.go_json.origins import leaves
from webhook.kubevirt.resources import KUBEVIRTS, PRESETS
from webhook.kubevirt.vm import creation


def vm(template: Any = None, **spec: Any) -> Any:
    """A VM with all that KubeVirt requires, and with memory where no instancetype gives it some."""
    made = samples.vm(template, **{"runStrategy": "Always"} | spec)
    domain = made["spec"]["template"]["spec"]["domain"]
    domain.setdefault("devices", {})
    if "instancetype" not in spec:
        domain.setdefault("memory", {"guest": "1Gi"})
    return made


CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster"]
BOTH = vm(instancetype={"name": "u1"}, preference={"name": "linux"})
MATCHED = [BOTH, instancetype(), preference(devices={"preferredDiskBus": "virtio"})]
KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {"configuration": {"cpuModel": "Haswell"}},
    "status": {"phase": "Deployed"},
}
SECRET = "hunter2"
WITH_SECRET = vm(
    {"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": "x"}}], "nodeSelector": {"a": "1", "b": "2"}},
    instancetype={"name": "u1"},
    preference={"name": "linux"},
)


def expand(*objects: Any, options: tuple[str | Path, ...] = ()) -> Result:
    return run("expand", "-f", "-", *options, stdin=yaml.safe_dump_all(objects))


def example(name: str, *options: str) -> Result:
    return run("expand", "-f", EXAMPLES / "vms" / f"{name}.yaml", *CLUSTER, *options)


class TestExamples:
    def test_named(self) -> None:
        result = example("named", "--explain")

        assert (result.exit_code, "not-shown" in result.output) == (0, False)
        assert result.stdout.splitlines()[:3] == [
            f"VirtualMachineInstance shop/till  from {EXAMPLES}/vms/named.yaml:3",
            "  instancetype  u1.medium, VirtualMachineClusterInstancetype",
            "  preference    linux, VirtualMachineClusterPreference",
        ]

    def test_inferred(self, golden: Golden) -> None:
        told = json.loads(example("inferred", "--explain", "-o", "json").stdout)

        named = {"kind": "VirtualMachineClusterInstancetype", "name": "u1.medium", "inferredFromVolume": "root"}
        assert told["instancetype"] == named
        by_path = {field["path"]: field for field in told["fields"]}
        assert by_path["spec.domain.devices.disks[0].disk.bus"]["origin"] == "vm"
        cores = {"path": "spec.domain.cpu.cores", "value": 4, "origin": "instancetype", "name": "u1.medium"}
        assert by_path["spec.domain.cpu.cores"] == cores
        random = ["spec.domain.firmware.uuid", "spec.domain.firmware.serial"]
        assert [path for path, field in by_path.items() if field.get("random")] == random
        assert told["object"]["spec"]["domain"]["cpu"]["cores"] == 4
        golden(example("inferred", "--explain").stdout.replace(str(EXAMPLES), "EXAMPLES"))

    def test_conflicting(self, golden: Golden) -> None:
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


def test_several_machines() -> None:
    other = vm(instancetype={"name": "none"}) | {"metadata": {"name": "other"}}
    result = expand(*MATCHED, other, options=("-o", "json"))

    assert result.exit_code == 1
    assert json.loads(result.stdout)["metadata"]["name"] == "vm"
    assert 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "none" not found' in result.stderr
    both = [{**vm(), "metadata": {"name": name}} for name in ("a", "b")]
    # Machines get UUIDs of their own.
    firmware = [each["spec"]["domain"]["firmware"] for each in json.loads(expand(*both, options=("-o", "json")).stdout)]
    assert len({value for entry in firmware for value in entry.values()}) == 4
    assert expand(*both, options=("--explain",)).stdout.count("VirtualMachineInstance") == 2


def test_mode_expand_is_the_vm_itself() -> None:
    expanded = yaml.safe_load(expand(*MATCHED, options=("--mode", "expand")).stdout)
    assert expanded["kind"] == "VirtualMachine"
    assert not expanded["spec"].keys() & {"instancetype", "preference"}
    assert expanded["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "4Gi"
    text = expand(*MATCHED, options=("--mode", "expand", "--explain")).stdout
    assert "  spec.template.spec.domain.cpu.sockets  = 2    ← instancetype u1" in text


@pytest.mark.parametrize(
    ("machine", "options"),
    [(vm(preference={"inferFromVolume": "v"}), ("--mode", "expand")), (BOTH, ()), (vm(instancetype={"kind": "x"}), ())],
    ids=["mode expand infers nothing", "missing", "a cause with its field"],
)
def test_what_kubevirt_denies_is_said_in_its_words(machine: Any, options: tuple[str, ...], golden: Golden) -> None:
    result = expand(machine, options=options)
    assert result.exit_code == 1
    golden(result.stderr)
    assert "--cluster-from" not in expand(machine, options=(*options, *map(str, CLUSTER))).stderr


def test_all_causes_are_listed() -> None:
    devices = [{"name": "g", "deviceName": "d"}]
    domain = {
        "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": "m", "dedicatedCpuPlacement": True, "numa": {}},
        "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}},
        "memory": {"guest": "1Gi"},
        "ioThreadsPolicy": "auto",
        "devices": {"gpus": devices, "hostDevices": devices},
    }
    cpu = {"guest": 1, "model": "m", "dedicatedCPUPlacement": True, "numa": {}}
    wanted = instancetype(cpu=cpu, ioThreadsPolicy="auto", gpus=devices, hostDevices=devices)
    machine = vm({"domain": domain}, instancetype={"name": "u1"})
    lines = expand(machine, wanted).stderr.splitlines()
    expanded = expand(machine, wanted, options=("--mode", "expand")).stderr.splitlines()

    assert len(lines) == 12
    assert lines[-1] == "  - and 2 more validation errors"
    assert len(expanded) == 14
    assert expanded[1].startswith("  VM field(s) spec.template.spec.domain.resources.requests.cpu, ")


def test_a_vmi_gets_defaults_only(refused: Refused) -> None:
    metadata = {"name": "a", "annotations": {"kubevirt.io/cluster-instancetype-name": "u1"}}
    vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
    vmi |= {"spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}}}
    shown = yaml.safe_load(expand(vmi, instancetype()).stdout)

    assert shown["spec"]["domain"]["cpu"]["sockets"] == 1
    assert shown["spec"]["domain"]["memory"]["guest"] == "1Gi"
    assert "\nvmi  2 fields\n" in expand(vmi, options=("--explain",)).stdout
    told = json.loads(expand(vmi, options=("--explain", "-o", "json")).stdout)
    assert {field["origin"] for field in told["fields"]} == {"vmi", "KubeVirt default", "cluster settings"}
    refused(expand(vmi, options=("--mode", "expand")))


class TestPresets:
    """KubeVirt merges them into new VMIs; what is printed is without them, and says so."""

    def preset(self, name: str, namespace: str = "demo", **labels: str) -> Any:
        return {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstancePreset",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "domain": {"devices": {}, "cpu": {"cores": 2}}},
        }

    def labeled(self, **spec: Any) -> Any:
        machine = vm(**spec)
        machine["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        return machine

    @property
    def presets(self) -> list[Any]:
        elsewhere = self.preset("elsewhere", "shop", size="large")
        return [self.preset("large", size="large"), self.preset("small", size="small"), elsewhere]

    def lines(self, result: Result) -> list[str]:
        return [line.partition(": ")[2] for line in result.stderr.splitlines() if "not applied" in line]

    def test_those_among_the_files_that_match_are_named(self) -> None:
        result = expand(self.labeled(), *self.presets)
        assert result.exit_code == 0
        assert "cores: 2" not in result.stdout
        expected = "not applied: VirtualMachineInstancePreset demo/large, which selects the VMI by its labels"
        assert self.lines(result) == [expected]
        metadata = {"name": "a", "namespace": "demo", "labels": {"size": "large"}}
        vmi: Any = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
        vmi |= {"spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}}}
        assert self.lines(expand(vmi, *self.presets)) == [expected]
        # A preset may be what a denied VM lacks.
        denied = expand(self.labeled(instancetype={"name": "none"}), *self.presets)
        assert (denied.exit_code, self.lines(denied)) == (1, [expected])

    def test_where_none_is_applied_by_kubevirt_none_is_named(self) -> None:
        excluded = self.labeled()
        excluded["spec"]["template"]["metadata"]["annotations"] = {
            "virtualmachineinstancepresets.admission.kubevirt.io/exclude": "true"
        }
        for machine, options in ((vm(), ()), (excluded, ()), (self.labeled(), ("--mode", "expand"))):
            assert self.lines(expand(machine, *self.presets, options=options)) == []

    def test_those_of_the_cluster_in_files(self, tmp_path: Path) -> None:
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([KUBEVIRT, *self.presets]))
        result = expand(self.labeled(), options=("--cluster-from", tmp_path))
        assert [line.split(",")[0] for line in self.lines(result)] == [
            "not applied: VirtualMachineInstancePreset demo/large"
        ]


def test_the_clusters_settings(golden: Golden) -> None:
    text = expand(vm(), KUBEVIRT, options=("--explain",)).stdout
    early = expand(vm(), {**KUBEVIRT, "status": {}}, options=("--explain",)).stdout

    assert "  settings      KubeVirt kubevirt/kubevirt\n" in text
    assert "spec.domain.cpu.model = Haswell  ← cluster settings" in text
    assert "Haswell" not in early
    golden(early)
    assert "  settings      KubeVirt's defaults\n" in expand(vm(), options=("--explain",)).stdout


def test_a_captured_revision_is_told() -> None:
    stored = revision("r", instancetype(cpu={"guest": 8}))
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
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Cookie", "value": SECRET}]}}
    machine: dict[str, Any] = vm({"volumes": volumes, "livenessProbe": probe})
    notes = {"kubevirt.io/ignitiondata": SECRET, "note": f"ssh-rsa AAAA{SECRET}", "x/admin-password": SECRET}
    machine["spec"]["template"]["metadata"] = {"annotations": notes}
    machine["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    return machine


@pytest.mark.control("outputs-in-tickets")
@pytest.mark.parametrize("mode", ["reference", "expand"])
def test_secrets_are_shown_only_on_request(mode: str) -> None:
    for options in ("", "-o json"):
        result = expand(secretive(), options=("--mode", mode, *options.split()))
        assert (result.exit_code, result.stdout) == (2, ""), "a placeholder must not be applied"
        assert "--show-secrets" in result.stderr
    for options in ("--explain", "--explain -o json", "--explain -o yaml"):
        result = expand(secretive(), options=("--mode", mode, *options.split()))
        assert result.exit_code == 0
        assert SECRET not in result.output, options
        if "-o" in options:
            assert yaml.safe_load(result.stdout)["object"] is None, "a placeholder must not be applied"
    whole = expand(secretive(), options=("--mode", mode, "--show-secrets"))
    assert whole.stdout.count(SECRET) == (8 if mode == "expand" else 7)
    assert whole.stderr == ""
    # Nor do errors show them.
    machine = secretive()
    machine["spec"]["instancetype"] = {"name": "none"}
    assert SECRET not in expand(machine).output


class TestKubeVirtVersions:
    PANIC = (vm(preference={"name": "linux"}), preference(devices={"preferredPanicDeviceModel": "isa"}))

    def panics(self, *options: str, objects: tuple[Any, ...] = ()) -> bool:
        result = expand(*self.PANIC, *objects, options=options)
        return "panicDevices" in yaml.safe_load(result.stdout)["spec"]["domain"]["devices"]

    def test_the_kubevirt_object_and_the_option_before_it(self) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.7.4", "targetKubeVirtVersion": "v1.7.4"}
        older = ({**KUBEVIRT, "status": status},)
        assert self.panics() and self.panics("--kubevirt-version", "1.9", objects=older)
        assert not (self.panics("--kubevirt-version=v1.8.4") or self.panics(objects=older))

    @pytest.mark.parametrize("version", ["", "latest", "1.5", "4.19"])
    def test_what_is_not_a_known_release(self, version: str) -> None:
        result = expand(*self.PANIC, options=("--kubevirt-version", version))
        assert (result.exit_code, "--kubevirt-version: " in result.stderr) == (2, True)

    def test_a_field_that_the_release_does_not_know_is_denied_or_dropped(self) -> None:
        objects = (vm(preference={"name": "linux"}), preference(preferredArchitecture="arm64"))

        def of(version: str, *options: str) -> Result:
            return expand(*objects, options=("--kubevirt-version", version, *options))

        denied, dropped, newer = of("1.6"), of("1.6", "--no-validate"), of("1.7")

        assert (denied.exit_code, denied.stdout) == (1, "")
        for older in (denied, dropped):
            assert "spec.preferredArchitecture" in older.stderr
            assert "KubeVirt 1.7 does" in older.stderr
        assert (yaml.safe_load(dropped.stdout)["spec"]["architecture"], dropped.exit_code) == ("amd64", 0)
        assert (yaml.safe_load(newer.stdout)["spec"]["architecture"], newer.stderr) == ("arm64", "")

    def test_definitions_among_the_files_say_what_is_known(self) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0", "targetKubeVirtVersion": "v1.9.0"}
        preferred = preference(preferredArchitecture="arm64")
        objects = (vm(preference={"name": "linux"}), preferred, {**KUBEVIRT, "status": status})
        lacking = definition(preferred["kind"], ["preferredArchitecture"])

        assert yaml.safe_load(expand(*objects).stdout)["spec"]["architecture"] == "arm64"
        assert expand(*objects, lacking).exit_code == 1
        result = expand(*objects, lacking, options=("--no-validate",))
        assert "spec.preferredArchitecture" in result.stderr
        assert yaml.safe_load(result.stdout)["spec"]["architecture"] == "amd64"
        # The option asks for a release as it is by itself.
        chosen = expand(*objects, lacking, options=("--kubevirt-version", "1.9"))
        assert yaml.safe_load(chosen.stdout)["spec"]["architecture"] == "arm64"

    def test_a_definition_that_is_none_is_one_sentence(self, refused: Refused) -> None:
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0"}
        broken = {**definition("VirtualMachine"), "spec": {"versions": 7}}
        refused(expand(vm(), {**KUBEVIRT, "status": status}, broken))


class TestLive:
    @pytest.fixture
    def server(self) -> Iterator[FakeApiServer]:
        with in_thread(running(FakeApiServer())) as server:
            yield server

    @pytest.fixture
    def ask(self, server: FakeApiServer, tmp_path: Path) -> Callable[..., Result]:
        return partial(expand, options=("--kubeconfig", server.kubeconfig(tmp_path / "kubeconfig")))

    def test_exactly_what_is_needed_is_read(self, server: FakeApiServer, ask: Command) -> None:
        labels = {f"instancetype.kubevirt.io/default-{kind}": kind for kind in ("instancetype", "preference")}
        stored: list[tuple[str, str, str, dict[str, Any]]] = [
            ("PersistentVolumeClaim", "c", "golden", {"metadata": {"labels": labels}}),
            ("DataSource", "i", "golden", {"spec": {"source": {"pvc": {"name": "c", "namespace": "golden"}}}}),
            ("VirtualMachineClusterInstancetype", "instancetype", "", instancetype(name="instancetype")),
            ("VirtualMachineClusterPreference", "preference", "", preference(name="preference")),
        ]
        for kind, name, namespace, fields in stored:
            server.put(RESOURCES[kind], name, namespace, **fields)
        paths = [RESOURCES[kind].path(namespace, name) for kind, name, namespace, _ in stored]
        source = {"sourceRef": {"kind": "DataSource", "name": "i", "namespace": "golden"}}
        machine = vm(
            {"volumes": [{"name": "root", "dataVolume": {"name": "d"}}]},
            instancetype={"inferFromVolume": "root"},
            preference={"inferFromVolume": "root"},
            dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": source}],
        )

        server.put(KUBEVIRTS, "kubevirt", "kubevirt", status=KUBEVIRT["status"], spec=KUBEVIRT["spec"])
        cpu = yaml.safe_load(ask(machine).stdout)["spec"]["domain"]["cpu"]
        asked = [item.path for item in server.asked]
        assert (cpu["sockets"], cpu["model"]) == (2, "Haswell")
        assert len(asked) == len(set(asked)), "nothing is asked twice"
        revisions = [path for path in asked if "controllerrevisions" in path]
        definitions = {DEFINITIONS.path("", name) for name in NAMES.values()}
        installed = {CONFIG_MAPS.path(NAME, NAME), CONFIGURATIONS["MutatingWebhookConfiguration"].path("", NAME)}
        paths.append(PRESETS.path("demo"))
        assert {*asked} == {*paths, KUBEVIRTS.path(), DEFINITIONS.path(), *definitions, *revisions, *installed}

    def test_what_may_not_be_read(self, server: FakeApiServer, ask: Command) -> None:
        server.fail(RESOURCES["VirtualMachineClusterPreference"].path("", "linux"), 403)
        refused = ask(BOTH)
        server.fail(KUBEVIRTS.path(), 500)
        broken = ask(BOTH)
        missing = ask(BOTH)

        assert [result.exit_code for result in (refused, broken, missing)] == [2, 2, 1]
        assert "grant get on virtualmachineclusterpreferences.instancetype.kubevirt.io" in refused.stderr
        assert broken.stderr.startswith("Error: KubeVirt: ")
        assert '"u1" not found' in missing.stderr

    def test_presets_that_may_not_be_listed(self, server: FakeApiServer, ask: Command) -> None:
        server.fail(PRESETS.path("demo"), 403)
        result = ask(vm())
        assert result.exit_code == 0
        (line,) = [each for each in result.stderr.splitlines() if PRESETS.kind in each]
        assert "grant list on virtualmachineinstancepresets.kubevirt.io" in line


@pytest.mark.parametrize(
    "content",
    [
        "",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}",
        yaml.safe_dump(instancetype()),
        "a: &a [*a]",
        "a: " + "[" * 300,
    ],
    ids=["empty", "secret", "instancetype", "loop", "deep"],
)
def test_bad_input_is_one_sentence_and_exit_2(content: str, refused: Refused) -> None:
    refused(run("expand", "-f", "-", stdin=content))


@pytest.mark.parametrize(
    ("objects", "path"),
    [
        ([{**vm(), "spec": {"template": 1}}], "spec.template"),
        ([{**vm(), "spec": {}}], "spec.template"),
        ([vm({"domain": {"devices": {"disks": [{"name": str(n)} for n in range(10_000)]}}})], "disks"),
        ([BOTH, {**instancetype(), "spec": {"cpu": 1}}, preference()], "spec.cpu"),
    ],
    ids=["type", "template", "disks", "instancetype"],
)
def test_what_the_api_server_denies_is_named_and_exit_1(objects: list[Any], path: str) -> None:
    result = expand(*objects)
    assert (result.exit_code, result.stdout, path in result.stderr) == (1, "", True)


def test_a_machine_without_a_spec_is_denied_without_validation_too() -> None:
    bare = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a"}}
    result = expand(bare, options=("--no-validate",))
    assert (result.exit_code, "no memory requested" in result.stderr) == (1, True)


def test_malformed_settings_are_named(refused: Refused) -> None:
    refused(expand(vm(), {**KUBEVIRT, "spec": {"configuration": {"cpuModel": 1}}}))


def test_kinds_of_no_use_are_said_to_be_passed_over(golden: Golden) -> None:
    result = expand(vm(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    assert result.exit_code == 0
    golden(result.stderr)


@settings(max_examples=60)
@given(st.data(), anything)
def test_malformed_objects_never_end_in_a_traceback(data: st.DataObject, new: Any) -> None:
    objects = [WHOLE, instancetype(), preference(), KUBEVIRT]
    which = data.draw(st.integers(0, 3))
    objects[which] = replaced(objects[which], data, new)
    options = data.draw(st.sampled_from([[], ["--explain"], ["--mode", "expand"], ["-o", "json", "--explain"]]))
    stdin = "\n---\n".join(json.dumps(item) for item in objects)
    result = CliRunner().invoke(main, ["expand", "-f", "-", *options], input=stdin)

    assert result.exit_code in (0, 1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == 0 or result.stderr


def test_what_the_vm_says_is_short_and_bookkeeping_too() -> None:
    get = among([instancetype(), preference(devices={"preferredDiskBus": "virtio"})])
    created = creation.from_vm(WITH_SECRET, get, lambda: "some-uuid")
    told, out = Explanation(created, redact(created.obj), "vm.yaml:1", "KubeVirt's built-in ones", ()), StringIO()
    told.print(Console(file=out, width=1000))
    rows = [line.split("←")[0].split(" = ") for line in out.getvalue().splitlines() if "←" in line]
    short = {path.strip(): value.strip() for path, value in rows}

    assert short["spec.volumes"] == "… 2 fields"
    assert short["spec.nodeSelector"] == "… 2 fields"
    assert short["status"].endswith(" fields")
    assert short["spec.domain.cpu.sockets"] == "2"
    assert "metadata.name" not in short
    assert [field["path"] for field in told.as_json()["fields"]] == [path for path, _ in leaves(told.shown)]
    assert "← instancetype u1\n" in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((plain, plain) for plain in ("virtio", "4Gi", "host-model", "registry.example/a/b:13")),
        *((quoted, json.dumps(quoted)) for quoted in ("4", "1e3", "true", "null", "", " a", "a ", 'a"b', "a\nb")),
        *((True, "true"), (4, "4"), ({}, "{}")),
        ("x" * 100, "x" * 72 + "…"),
    ],
)
def test_values_as_people_write_them(value: Any, text: str) -> None:
    assert _text(value) == text
