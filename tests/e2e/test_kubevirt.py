"""All jobs beside a real KubeVirt: its webhooks before and after ours, its controllers behind what we admit.

`make kubevirt` runs these, for they take a build of their own.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from webhook.kubevirt import parity
from webhook.kubevirt.configuration import Configuration

from .commands import DEFAULT_SCHEDULER, DEFAULT_SCHEDULER_LEASE, KUBEVIRT_SCHEDULER, KUBEVIRT_SCHEDULER_LEASE
from .conftest import BUILD
from .kube import ApiError, Json, Object, eventually
from .kubevirt import KUBEVIRTS, NAMESPACE, KubeVirt, aggregation
from .objects import CONFLICT
from .pki import Pki
from .plane import ControlPlane
from .webhook_server import DOMAIN, ROOT, WebhookServer, install
from .workloads import MIGRATIONS, PODS, REVISIONS, VMIS, VMS

pytestmark = pytest.mark.kubevirt

JOBS = ("scheduling", "instancetypes", "migration", "eviction")
POOLS = "pool.kubevirt.io/v1beta1/virtualmachinepools"
REPLICA_SETS = "kubevirt.io/v1/virtualmachineinstancereplicasets"
DEFAULTS = {f"{DOMAIN}/default-instancetype": "u1.small", f"{DOMAIN}/default-preference": "fedora"}
DESCHEDULER = {"requested-by": "sigs.k8s.io/descheduler"}
SETTINGS: Mapping[str, Any] = {"schedulers": {"kubevirt": {"guard": "lease kubevirt-scheduler/kubevirt-scheduler"}}}
# A VM that is resized or moved while it runs.
CONFIGURATION = {"vmRolloutStrategy": "LiveUpdate", "evictionStrategy": "LiveMigrate"}
SMALL = {"kind": "VirtualMachineClusterInstancetype", "name": "u1.small"}
FEDORA = {"kind": "VirtualMachineClusterPreference", "name": "fedora"}
ROOTED: Json = {
    "domain": {"devices": {}},
    "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
}


class Place:
    """A namespace of one test's: its VMs, as their owner and as KubeVirt see them."""

    def __init__(self, real: KubeVirt, namespace: str) -> None:
        self.real = real
        self.admin = real.plane.admin
        self.namespace = namespace

    def create(self, resource: str, obj: Json) -> Object:
        return self.admin.create(resource, obj, self.namespace)

    def vm(self, name: str = "web", *, run: str = "Always", template: Json | None = None, **spec: Any) -> Object:
        made = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": run, "template": {"spec": template or {"domain": {"devices": {}}}}, **spec},
        }
        return self.create(VMS, made)

    def get(self, resource: str, name: str = "web") -> Object:
        return self.admin.get(resource, name, self.namespace)

    def running(self, name: str = "web") -> Object:
        """The VMI, once it runs."""

        def look() -> Object | None:
            try:
                found = self.get(VMIS, name)
            except ApiError:
                return None
            return found if found["status"].get("phase") == "Running" else None

        return eventually(look, what=f"VMI {name} to run")

    def patch(self, resource: str, name: str, change: Json) -> Object:
        return self.admin.patch(resource, name, change, self.namespace)

    def migrate(self, name: str = "web", **selector: str) -> Object:
        spec: Json = {"vmiName": name} | ({"addedNodeSelector": selector} if selector else {})
        return self.create(
            MIGRATIONS,
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration",
                "metadata": {"generateName": "move-"},
                "spec": spec,
            },
        )

    def ended(self, migration: Mapping[str, Any]) -> str:
        """The phase in which a migration ended."""

        def look() -> str | None:
            found = self.get(MIGRATIONS, migration["metadata"]["name"])
            phase: str | None = found.get("status", {}).get("phase")
            return phase if phase in ("Succeeded", "Failed") else None

        return eventually(look, what="the migration to end", timeout=60)

    def launchers(self, name: str = "web") -> list[Object]:
        """The pods of a VM, the newest last."""
        found = [pod for pod in self.admin.list(PODS, self.namespace) if _domain(pod) == name]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def launcher(self, name: str = "web") -> Object:
        """The pod in which a VM runs."""
        node = self.running(name)["status"]["nodeName"]
        return next(pod for pod in self.launchers(name) if pod["spec"].get("nodeName") == node)

    def unschedulable(self, name: str = "web") -> Object | None:
        """A pod of a VM for which there is no node."""
        return next((pod for pod in self.launchers(name) if _is_unschedulable(pod)), None)

    def claim(self, name: str, inferred: Mapping[str, str]) -> Object:
        """A volume that says which instancetype and preference go with it."""
        labels = {f"instancetype.kubevirt.io/{key}": value for key, value in inferred.items()}
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "labels": labels}}
        return self.create("v1/persistentvolumeclaims", {**made, "spec": spec})

    def evict(self, pod: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> ApiError:
        """KubeVirt refuses every eviction of a VM that it can migrate; how this one was refused."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod["metadata"]["name"], "annotations": dict(annotations or {})},
        }
        with pytest.raises(ApiError) as refused:
            self.admin.create(PODS, eviction, self.namespace, name=pod["metadata"]["name"], subresource="eviction")
        return refused.value


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def _domain(pod: Mapping[str, Any]) -> str | None:
    name: str | None = pod["metadata"].get("annotations", {}).get("kubevirt.io/domain")
    return name


@pytest.fixture(scope="session")
def kubevirt_binaries(binaries: Path) -> Path:
    """The directory of KubeVirt's binaries; to build them takes minutes, so it is not done in passing."""
    assert binaries
    command = [sys.executable, str(BUILD), "--kubevirt", "--print"]
    directory = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    if not directory.is_dir():
        pytest.skip("KubeVirt isn't built; run make kubevirt")
    return directory


@pytest.fixture(scope="session")
def real(binaries: Path, kubevirt_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeVirt]:
    """A KubeVirt for all tests of this module, on nodes that are played."""
    directory = tmp_path_factory.mktemp("kubevirt")
    front = Pki(directory / "front")
    plane = ControlPlane(
        directory / "plane", binaries, controller_manager=True, crds=False, apiserver_flags=aggregation(front)
    )
    with plane, KubeVirt(plane, kubevirt_binaries, CONFIGURATION) as kubevirt:
        plane.start_scheduler("default-scheduler", DEFAULT_SCHEDULER, lease=DEFAULT_SCHEDULER_LEASE)
        plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=KUBEVIRT_SCHEDULER_LEASE)
        yield kubevirt
        assert kubevirt.nodes.mistakes == []


@pytest.fixture(scope="session")
def server(real: KubeVirt, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    install(real.plane.admin)
    with WebhookServer(real.plane, tmp_path_factory.mktemp("webhook"), "beside", SETTINGS) as server:
        server.insist()
        assert server.validates
        yield server


@pytest.fixture
def place(real: KubeVirt, server: WebhookServer) -> Place:
    """A namespace in which every job enforces, with defaults."""
    return new_place(real, server.labels("enforce", [f"{DOMAIN}/{job}" for job in JOBS]), DEFAULTS)


def new_place(real: KubeVirt, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Place:
    metadata = {"generateName": "real-", "labels": dict(labels), "annotations": dict(annotations)}
    made = real.plane.admin.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return Place(real, made["metadata"]["name"])


@pytest.fixture
def apart(real: KubeVirt) -> Place:
    """A namespace that we are not asked about: what KubeVirt does by itself."""
    return new_place(real, {}, {})


def matchers(found: Mapping[str, Any]) -> list[Any]:
    return [found["spec"].get("instancetype"), found["spec"].get("preference")]


def differences(place: Place, name: str) -> list[str]:
    """Where a VMI is not what our port makes of its VM."""
    vmi, vm = place.get(VMIS, name), place.get(VMS, name)
    kubevirt = place.admin.get(KUBEVIRTS, "kubevirt", NAMESPACE)

    def get(kind: str, namespace: str, name: str) -> Any:
        assert kind == "ControllerRevision"
        return _plain(place.admin.get(REVISIONS, name, namespace))

    configuration = Configuration.of_kubevirt(_plain(kubevirt))
    return [one.path for one in parity.differences(_plain(vm), _plain(vmi), get, configuration)]


def _plain(found: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(found))


# -- scheduling and instancetypes --------------------------------------------------------------------------------------


def test_a_vm_that_says_nothing_runs_with_its_defaults_on_its_scheduler(place: Place) -> None:
    place.vm()

    vmi = place.running()
    vm = place.get(VMS)

    eventually(lambda: place.get(VMS)["status"].get("ready"), what="the VM to be ready")
    assert matchers(vm) == [SMALL, FEDORA]
    assert vm["status"]["instancetypeRef"]["controllerRevisionRef"]["name"].startswith("web-u1.small-")
    assert vmi["spec"]["domain"]["memory"]["guest"] == "2Gi"
    assert place.launcher()["spec"]["schedulerName"] == "kubevirt"
    assert differences(place, "web") == []


def test_without_us_it_would_never_start(apart: Place) -> None:
    apart.vm()

    def failure() -> str | None:
        conditions = apart.get(VMS).get("status", {}).get("conditions", [])
        return next((one["message"] for one in conditions if one["type"] == "Failure"), None)

    assert "no memory requested" in eventually(failure, what="virt-controller to give up")


@pytest.mark.parametrize(
    ("instancetype", "preference"),
    [
        ("u1.small", "fedora"),
        ("o1.medium", "windows.2k22.virtio"),
        ("u1.2xlarge", "rhel.9.realtime"),
        ("cx1.medium", "ubuntu"),
        ("n1.medium", "centos.stream9"),
        ("u1.2xmedium", "opensuse.leap"),
    ],
)
def test_a_bare_vmi_is_what_kubevirt_makes_of_the_same_vm(
    place: Place, apart: Place, instancetype: str, preference: str
) -> None:
    template = {
        "domain": {
            "devices": {
                "disks": [{"name": "root", "disk": {}}, {"name": "tools", "cdrom": {}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
            # So that KubeVirt chooses none.
            "firmware": {
                "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223",
                "serial": "e4686d2c-6e8d-4335-b8fd-81bee22f4814",
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": name, "containerDisk": {"image": "registry.example/disk"}} for name in ("root", "tools")],
    }
    asked = {f"{DOMAIN}/instancetype": instancetype, f"{DOMAIN}/preference": preference}
    apart.vm(template=template, instancetype={"name": instancetype}, preference={"name": preference})

    ours = place.create(
        VMIS,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "web", "annotations": asked},
            "spec": copy.deepcopy(template),
        },
    )
    theirs = eventually(lambda: _made(apart), what="virt-controller to make the VMI")

    assert ours["spec"] == theirs["spec"]
    assert _kubevirts(ours) == _kubevirts(theirs)


def _made(place: Place) -> Object | None:
    return next(iter(place.admin.list(VMIS, place.namespace)), None)


def _kubevirts(vmi: Mapping[str, Any]) -> dict[str, str]:
    """The annotations that instancetype and preference left, and not those that virt-controller keeps for itself."""
    own = (DOMAIN, "kubevirt.io/vm-generation", "kubevirt.io/nonroot")
    return {
        key: value
        for key, value in vmi["metadata"]["annotations"].items()
        if not key.startswith(own) and not key.endswith("-observed-api-version")
    }


def test_a_replica_sets_vmis_are_filled(place: Place) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    place.create(
        REPLICA_SETS,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": {"name": "web"},
            "spec": spec,
        },
    )

    def both() -> list[Object]:
        found = [vmi for vmi in place.admin.list(VMIS, place.namespace) if vmi["status"].get("phase") == "Running"]
        return found if len(found) == 2 else []

    vmis = eventually(both, what="both replicas to run")
    guests = [vmi["spec"]["domain"]["memory"]["guest"] for vmi in vmis]
    assert guests == ["2Gi", "2Gi"]


def test_a_pools_vms_keep_their_defaults_when_the_pool_changes_though_they_were_withdrawn(place: Place) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    machine = {"metadata": {"labels": {"app": "web"}}, "spec": {"runStrategy": "Halted", "template": template}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": machine}
    kind = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool"}
    place.create(POOLS, {**kind, "metadata": {"name": "web"}, "spec": spec})
    eventually(lambda: place.admin.list(VMS, place.namespace), what="the pool to make its VM")
    withdrawn = dict.fromkeys(DEFAULTS)
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"annotations": withdrawn}})

    changed = {"template": {"spec": {"terminationGracePeriodSeconds": 17}}}
    place.patch(POOLS, "web", {"spec": {"virtualMachineTemplate": {"spec": changed}}})

    def updated() -> Object | None:
        vm = place.get(VMS, "web-0")
        return vm if vm["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") == 17 else None

    vm = eventually(updated, what="the pool to update its VM")
    assert matchers(vm) == [SMALL, FEDORA]
    assert vm["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"


def test_the_owner_exchanges_a_default_while_the_vm_runs(place: Place) -> None:
    place.vm()
    place.running()

    place.patch(VMS, "web", {"spec": {"instancetype": {"name": "u1.medium"}}})

    def grown() -> bool:
        return bool(place.get(VMIS)["spec"]["domain"]["memory"]["guest"] == "4Gi")

    eventually(grown, what="virt-controller to plug memory in")
    with pytest.raises(parity.Incomparable):
        differences(place, "web")


def test_the_owner_who_gives_up_one_default_is_told_of_the_other(place: Place) -> None:
    place.vm(run="Halted")

    with pytest.raises(ApiError, match="preference requires 2Gi") as refused:
        place.patch(VMS, "web", {"spec": {"instancetype": None}})
    (said,) = refused.value.warnings
    assert said.startswith(
        "kubevirt-webhook: set spec.preference to null to go without VirtualMachineClusterPreference/"
    )

    gone = place.patch(VMS, "web", {"spec": {"instancetype": None, "preference": None}})
    assert matchers(gone) == [None, None]


def test_a_default_that_does_not_fit_an_inferred_preference_is_named(place: Place) -> None:
    place.claim("root", {"default-preference": "windows.11"})

    with pytest.raises(ApiError, match="preference requires 2 vCPU") as refused:
        place.vm(template=ROOTED, preference={"inferFromVolume": "root"})

    (said,) = refused.value.warnings
    assert "name another one in spec.instancetype" in said


def test_an_empty_label_makes_a_vm_that_kubevirt_never_looks_at(place: Place) -> None:
    place.claim("root", {"default-instancetype": ""})

    vm = place.vm(template=ROOTED, instancetype={"inferFromVolume": "root"})

    assert matchers(vm) == [{}, None]
    assert "instancetype.kubevirt.io/default-instancetype that it was inferred from is empty" in vm.warnings[-1]
    with pytest.raises(ApiError, match="Either Name or InferFromVolume should be provided"):
        place.patch(VMS, "web", {"metadata": {"labels": {"any": "change"}}})


def test_a_restored_vm_is_as_it_was(place: Place) -> None:
    place.vm(run="Halted")
    kind = {"apiVersion": "snapshot.kubevirt.io/v1beta1"}
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}
    snapshots, restores = (f"snapshot.kubevirt.io/v1beta1/virtualmachine{what}" for what in ("snapshots", "restores"))
    snapshot = {"metadata": {"name": "then"}, "spec": {"source": source}}
    place.create(snapshots, {**kind, "kind": "VirtualMachineSnapshot", **snapshot})
    eventually(lambda: place.get(snapshots, "then").get("status", {}).get("readyToUse"), what="the snapshot")
    owners = {"instancetype": None, "preference": None, "template": {"spec": {"domain": {"memory": {"guest": "3Gi"}}}}}
    assert matchers(place.patch(VMS, "web", {"spec": owners})) == [None, None]

    restore = {"metadata": {"name": "back"}, "spec": {"target": source, "virtualMachineSnapshotName": "then"}}
    place.create(restores, {**kind, "kind": "VirtualMachineRestore", **restore})

    eventually(lambda: place.get(restores, "back").get("status", {}).get("complete"), what="the restore")
    assert matchers(place.get(VMS)) == [SMALL, FEDORA]


def test_beside_an_inferred_preference_the_default_makes_the_vm_one_that_starts(place: Place) -> None:
    place.claim("root", {"default-preference": "rhel.9"})

    vm = place.vm(template=ROOTED, preference={"inferFromVolume": "root"})

    assert matchers(vm) == [SMALL, {"name": "rhel.9"}]


def test_expanded_a_vm_is_what_virt_api_makes_of_it(place: Place, apart: Place) -> None:
    expand = {"metadata": {"annotations": {f"{DOMAIN}/expand-instancetypes": "true"}}}
    place.admin.patch("v1/namespaces", place.namespace, expand)
    named: Json = {"instancetype": {"name": "u1.small"}, "preference": {"name": "fedora"}}

    expanded = place.vm(run="Halted")
    apart.vm(run="Halted", **named)
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{apart.namespace}/virtualmachines/web/expand-spec"
    theirs = json.loads(apart.real.plane.kubectl("get", "--raw", path).stdout)

    assert matchers(expanded) == [None, None]
    ours = [_comparable(found) for found in (expanded, theirs)]
    assert ours[0] == ours[1]


def _comparable(vm: Mapping[str, Any]) -> Json:
    spec: Json = copy.deepcopy(vm["spec"]["template"]["spec"])
    spec.pop("schedulerName", None)
    for chosen in ("uuid", "serial"):
        spec["domain"].get("firmware", {}).pop(chosen, None)
    return spec


def test_what_crashes_kubevirts_webhook_is_a_sentence(place: Place, apart: Place) -> None:
    spread = {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}}
    named: Json = {
        "instancetype": {"name": "u1.small"},
        "preference": {"kind": "VirtualMachinePreference", "name": "p"},
    }
    said = []
    for where in (apart, place):
        preference = {"metadata": {"name": "p"}, "spec": spread}
        kind = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference"}
        where.create("instancetype.kubevirt.io/v1beta1/virtualmachinepreferences", {**kind, **preference})
        with pytest.raises(ApiError) as refused:
            where.vm(**named)
        said.append(refused.value.message)

    assert said[0].endswith("EOF")
    assert said[1].endswith("the preference spreads vCPUs with a ratio of 0, by which KubeVirt would divide")


# -- migration ---------------------------------------------------------------------------------------------------------


IN_A = {"domain": {"devices": {}}, "nodeSelector": {"zone": "a"}}


def test_an_added_selector_that_contradicts_the_vm_is_refused_by_both_ways_in(place: Place) -> None:
    place.vm(template=IN_A)
    place.running()

    with pytest.raises(ApiError, match="zone=b was added by this migration; the VM itself requires zone=a"):
        place.migrate(zone="b")
    said = place.real.call(place.namespace, "web", "migrate", {"addedNodeSelector": {"zone": "b"}})

    assert "zone=b was added by this migration; the VM itself requires zone=a" in said
    assert place.admin.list(MIGRATIONS, place.namespace) == []


def test_alone_kubevirt_migrates_it_elsewhere(apart: Place) -> None:
    apart.vm(template=IN_A, instancetype={"name": "u1.small"})
    apart.running()

    assert apart.ended(apart.migrate(zone="b")) == "Succeeded"

    assert apart.real.nodes.zone(apart.running()["status"]["nodeName"]) == "a"


def test_where_a_contradiction_is_only_warned_of_the_vm_goes_nowhere_instead_of_elsewhere(
    real: KubeVirt, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "migration": {"collision": "warn", "noEligibleNode": "warn"}}
    with WebhookServer(real.plane, tmp_path, "warning", settings) as warning:
        assert warning.validates
        place = new_place(real, warning.labels("enforce", [f"{DOMAIN}/{job}" for job in JOBS]), DEFAULTS)
        place.vm(template=IN_A)
        node = place.running()["status"]["nodeName"]

        migration = place.migrate(zone="b")

        assert "zone=b was added by this migration" in migration.warnings[0]
        pod = eventually(place.unschedulable, what="the scheduler to find no node")
        assert pod["spec"]["nodeSelector"]["zone"] == "a"
        assert place.running()["status"]["nodeName"] == node
        place.admin.delete(MIGRATIONS, migration["metadata"]["name"], place.namespace)


def test_an_added_selector_is_followed_once(place: Place) -> None:
    place.vm()
    first = place.running()["status"]["nodeName"]
    other = "b" if place.real.nodes.zone(first) == "a" else "a"

    assert place.ended(place.migrate(zone=other)) == "Succeeded"

    pod = place.launcher()
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    added = {"key": "zone", "operator": "In", "values": [other]}
    assert place.real.nodes.zone(pod["spec"]["nodeName"]) == other
    assert all(added in term["matchExpressions"] for term in terms["nodeSelectorTerms"])
    assert place.ended(place.migrate()) == "Succeeded"
    assert "zone" not in place.launcher()["spec"]["nodeSelector"]


def test_explain_names_the_node_that_kubevirt_takes(place: Place) -> None:
    place.vm(template=IN_A)
    place.running()
    asked = ["explain", "migration", f"{place.namespace}/web", "-o", "json"]
    kubeconfig = place.real.plane.kubeconfig_for("admin", ["system:masters"])
    command = [sys.executable, "-m", "webhook", *asked, f"--kubeconfig={kubeconfig}"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)

    assert place.ended(place.migrate()) == "Succeeded"

    assert answer["eligible"]["names"] == [place.running()["status"]["nodeName"]]


def test_explain_names_the_nodes_that_take_a_vm_from_elsewhere(place: Place) -> None:
    place.real.configure(developerConfiguration={"featureGates": ["DecentralizedLiveMigration"]})
    eventually(lambda: _receiver(place), what="virt-api to take VMs that are received")
    eventually(lambda: _phase(place) == "WaitingForSync", what="the VMI to wait for its source")
    asked = ["explain", "migration", f"{place.namespace}/web", "-o", "json", "--to", "zone=b"]
    kubeconfig = place.real.plane.kubeconfig_for("admin", ["system:masters"])
    command = [sys.executable, "-m", "webhook", *asked, f"--kubeconfig={kubeconfig}"]
    spec = {"vmiName": "web", "receive": {"migrationID": "one"}, "addedNodeSelector": {"zone": "b"}}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
    _come_from(place, "node-3")
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)

    place.create(MIGRATIONS, {**kind, "metadata": {"name": "receive"}, "spec": spec})

    pod = eventually(
        lambda: next((pod for pod in place.launchers() if pod["spec"].get("nodeName")), None), what="a pod"
    )

    assert answer["eligible"]["names"] == [pod["spec"]["nodeName"]] == ["node-4"]
    assert (answer["obstacles"], answer["gaps"]) == ([], [])


def _receiver(place: Place) -> Object | None:
    try:
        return place.vm(run="WaitAsReceiver")
    except ApiError:
        return None


def _phase(place: Place) -> str | None:
    found = _made(place)
    return found["status"].get("phase") if found else None


def _come_from(place: Place, node: str) -> None:
    """What the sending side's KubeVirt tells of a VM that runs on a node of that name."""
    labels = place.admin.get("v1/nodes", node)["metadata"]["labels"]
    source = {"node": node, "nodeSelectors": {key: value for key, value in labels.items() if "cpu" in key}}
    source |= {
        "pod": "virt-launcher-web-1",
        "selinuxContext": "none",
        "migrationUID": "1",
        "syncAddress": "10.0.0.1:9185",
    }

    def told() -> Object | None:
        vmi = place.get(VMIS)
        vmi["status"].setdefault("migrationState", {})["sourceState"] = source
        try:
            return place.real.plane.kubevirt_controller.replace(VMIS, vmi)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return None

    eventually(told, what="the source's state to be written")


def test_a_drain_goes_on_while_we_are_a_black_hole(place: Place, server: WebhookServer) -> None:
    place.vm(template=IN_A)
    first = place.running()["status"]["nodeName"]
    server.freeze()
    try:
        began = time.monotonic()
        refusal = place.evict(place.launcher())
        lasted = time.monotonic() - began

        assert "Eviction triggered evacuation" in refusal.message
        assert lasted < 3, "we were asked, and waited for"
        eventually(lambda: place.get(VMIS)["status"]["nodeName"] != first, what="the VM to leave its node")
    finally:
        server.thaw()


def test_the_descheduler_is_told_when_a_vm_has_nowhere_to_go(place: Place) -> None:
    place.vm(template={**IN_A, "nodeSelector": {"kubernetes.io/hostname": "node-1"}})
    place.running()

    vetoed = place.evict(place.launcher(), DESCHEDULER)
    assert vetoed.status == 429
    assert "no eligible node" in vetoed.message
    assert "evacuationNodeName" not in place.get(VMIS)["status"]

    drained = place.evict(place.launcher())
    assert "Eviction triggered evacuation" in drained.message


def test_the_descheduler_is_told_of_a_vm_that_kubevirt_can_never_migrate(place: Place) -> None:
    name = "w" * 64
    place.vm(name)
    place.running(name)

    vetoed = place.evict(place.launcher(name), DESCHEDULER)
    with pytest.raises(ApiError, match=r"metadata\.labels: Invalid value"):
        place.migrate(name)

    assert "it labels migrations with the VM's name, which has 64 characters" in vetoed.message
    assert "evacuationNodeName" not in place.get(VMIS, name)["status"]
