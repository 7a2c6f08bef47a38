"""What users, KubeVirt's controllers and admins do, at random: the requests that are decided, and what decides them."""

from __future__ import annotations

import copy
import http.client
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from tests.e2e.support.kube import Json, Kube, KubeError
from tests.e2e.support.migrations import EAST, WEST, guest, migration, source_of
from tests.e2e.support.objects import node, obj
from tests.e2e.support.webhook_server import DOMAIN, EVICTION, INSTANCETYPES, MIGRATION, OURS, SCHEDULING
from tests.e2e.support.workloads import INSTANCETYPES as SIZES
from tests.e2e.support.workloads import (
    MIGRATIONS,
    PODS,
    PREFERENCES,
    VMIS,
    VMS,
    instancetype,
    launcher_of,
    preference,
    vm,
    vmi_of,
)

from .cluster import NAME, Cluster
from .model import SHARED_SECONDS

POLICIES = (SCHEDULING, INSTANCETYPES, MIGRATION, EVICTION)
TENANTS = [f"tenant-{number}" for number in range(4)]
# It stays opted in, and its list changes only after the former one cannot count any more: a list that is too old shows.
STEADY = TENANTS[0]
# More than are in one page of a list. Their names come first, so that what counts is on the second page.
FILLERS = 110
# Preferences of their own have so many clients.
CLIENTS = 8
# What was changed so long ago, no answer that reviews share can be older than.
SETTLED_SECONDS = SHARED_SECONDS + 0.5
# Of each user, where a real KubeVirt runs them.
MOST_VMS = 15
DESCHEDULER = "sigs.k8s.io/descheduler"
LUNS = [f"lun-{number}" for number in range(8)]
SIZE_NAMES = ("small", "large")
_LISTS = (
    None,
    "VirtualMachineInstancetype/small",
    "VirtualMachineInstancetype/large",
    "VirtualMachineInstancetype/small,VirtualMachineInstancetype/large",
)
_LIMIT: Json = {"maxUnfinished": 2}
# Settings beside those that all have, and how often each is chosen. A replica may follow those of half a minute ago, so
# that a limit shows only while all of these have one.
_SETTINGS: Sequence[tuple[int, Json]] = (
    (1, {}),
    (4, {"migration": _LIMIT}),
    (4, {"migration": {"maxUnfinished": 1, "noEligibleNode": "warn"}}),
    (4, {"migration": {**_LIMIT, "collision": "warn"}}),
    (4, {"migration": _LIMIT, "instancetypes": {"missing": "deny"}}),
    (4, {"migration": _LIMIT, "instancetypes": {"defaultInstancetype": "VirtualMachineInstancetype/small"}}),
    (4, {"migration": _LIMIT, "scheduling": {"spread": "hostname", "spreadVirtualMachines": True}}),
)
FIRST_SETTINGS = _SETTINGS[1][1]


def prepare(cluster: Cluster) -> None:
    """Nodes, namespaces, and what VMs may name."""
    admin = cluster.plane.admin
    for number in range(FILLERS):
        admin.create("v1/namespaces", obj("Namespace", f"filler-{number:03}"))
        admin.create("v1/nodes", node(f"node-{number:03}", {"example.com/role": "other"}))
    # KubeVirt's own nodes are there already.
    for name, zone in () if cluster.kubevirt else (("node-z-east", EAST), ("node-z-west", WEST)):
        admin.create("v1/nodes", node(name, zone))
        resources = {"cpu": "64", "memory": "256Gi", "pods": "500", "devices.kubevirt.io/kvm": "1k"}
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as a test says"}],
        }
        admin.patch("v1/nodes", name, {"status": status}, subresource="status")
        admin.patch("v1/nodes", name, {"spec": {"taints": None}})
    for name in TENANTS:
        labels = {OURS: NAME} | dict.fromkeys(POLICIES, "enforce")
        kept = {"allowed-instancetypes": _LISTS[1], "default-preference": "VirtualMachinePreference/linux"}
        annotations = {f"{DOMAIN}/{key}": value for key, value in kept.items()} if name == STEADY else {}
        admin.create("v1/namespaces", obj("Namespace", name, labels=labels, annotations=annotations))
        for made in (_size("small", 1), _size("large", 4)):
            admin.create(SIZES, made, name)
        admin.create(PREFERENCES, preference("linux"), name)
        for number in range(CLIENTS):
            admin.create(PREFERENCES, preference(_demanding(number), requirements={"cpu": {"guest": 2}}), name)


def _demanding(client: int) -> str:
    """The preference that a client changes, and no other does."""
    return f"demanding-{client % CLIENTS}"


def _size(name: str, cpus: int) -> Json:
    return instancetype(name, cluster=False, cpu={"guest": cpus})


@dataclass(frozen=True)
class Shape:
    """Of the traffic.

    Attributes:
        clients: how many there are.
        pause: between two requests of a client, in seconds, on average.
        steady: seconds between two lists of `STEADY`.
    """

    clients: int
    pause: float
    steady: float


class Traffic:
    """Some clients, each a thread. A context manager; left, all have ended.

    Attributes:
        done: how many requests of each kind were answered, and how many were not.
    """

    def __init__(self, cluster: Cluster, seed: int, shape: Shape) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._over = threading.Event()
        client = _User if cluster.kubevirt else _Client
        self._threads = [
            threading.Thread(
                target=self._run, args=(client(cluster, seed, number, shape.steady), shape.pause), daemon=True
            )
            for number in range(shape.clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, client: _Client, pause: float) -> None:
        while not self._over.wait(client.random.uniform(0, 2 * pause)):
            step = client.choose()
            try:
                step()
                self.done[step.__name__] += 1
            except KubeError as error:
                self.done[f"{step.__name__}: {error.status}"] += 1
            except (OSError, http.client.HTTPException):
                self.done[f"{step.__name__}: no answer"] += 1


class _Client:
    """One that does one thing after the other; objects are its own by their names, so that it knows what there is."""

    def __init__(self, cluster: Cluster, seed: int, number: int, steady: float) -> None:
        # The first one alone changes what has one writer.
        self._steady = steady if number == 0 else float("inf")
        self._listed, self._list = time.monotonic(), _LISTS[1]
        self.random = random.Random(f"{seed} {number}")
        self._cluster = cluster
        self._demanding = _demanding(number)
        self._demands: dict[str, int] = {}
        self._admin: Kube = cluster.plane.kube("admin", ("system:masters",))
        self._controller: Kube = cluster.plane.kube(
            cluster.plane.kubevirt_controller.user,
            ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"),
        )
        self._names = (f"c{number}-{count}" for count in itertools.count())
        self._vms: list[tuple[str, str]] = []
        self._running: list[tuple[str, Json]] = []
        self._migrations: list[tuple[str, str]] = []
        self._steps = self._all_steps(number)

    def _all_steps(self, number: int) -> Sequence[tuple[int, Callable[[], None]]]:
        """What it does, and how often."""
        return (
            (22, self.create_vm),
            (10, self.overwrite_vm),
            (4, self.delete_vm),
            (10, self.change_and_create),
            (6, self.relabel),
            (6, self.opt_in_and_create),
            (8, self.annotate),
            (4, self.resize),
            (8, self.run_vmi),
            (14, self.migrate),
            (5, self.exceed_limit),
            (12, self.finish_migration),
            (8, self.evict),
            (2, self.write_settings if number == 0 else self.create_vm),
        )

    def choose(self) -> Callable[[], None]:
        if time.monotonic() - self._listed > self._steady:
            return self.list_another
        weights = [weight for weight, _ in self._steps]
        return self.random.choices([step for _, step in self._steps], weights)[0]

    def _tenant(self) -> str:
        return self.random.choice(TENANTS)

    def _fickle(self) -> str:
        return self.random.choice([name for name in TENANTS if name != STEADY])

    # -- what is decided -----------------------------------------------------------------------------------------------

    def create_vm(self, namespace: str = "", domain: Json | None = None, **spec: Any) -> None:
        namespace, name = namespace or self._tenant(), next(self._names)
        made = vm(name, **(spec or self._choice()))
        made["spec"]["template"]["spec"]["domain"].update(domain or {})
        self._admin.create(VMS, made, namespace)
        self._vms.append((namespace, name))

    def _choice(self) -> Json:
        pick, named = self.random.random(), self.random.choice(SIZE_NAMES)
        spec: Json = {}
        if pick < 0.6:
            spec["instancetype"] = {"kind": "VirtualMachineInstancetype", "name": named if pick > 0.05 else "absent"}
        if 0.4 < pick < 0.8:
            name = self.random.choice(("linux", self._demanding))
            spec["preference"] = {"kind": "VirtualMachinePreference", "name": name}
        return spec

    def overwrite_vm(self) -> None:
        """As `kubectl replace` and pools do it: the whole spec, without what a webhook wrote into it."""
        namespace, name = self._one_of(self._vms)
        found = self._admin.get(VMS, name, namespace)
        changed = copy.deepcopy(dict(found))
        changed["spec"] = vm(name, runStrategy=self.random.choice(("Always", "Halted", "Manual")))["spec"]
        changed["spec"]["template"]["metadata"]["labels"]["step"] = str(self.random.randrange(1000))
        changed["metadata"]["annotations"] = {}
        self._admin.replace(VMS, changed)

    def delete_vm(self) -> None:
        namespace, name = self._one_of(self._vms)
        self._vms.remove((namespace, name))
        self._admin.delete(VMS, name, namespace)

    def run_vmi(self) -> None:
        """A VMI that runs, with its pod; some have moved before, and have disks with reservations."""
        namespace, name = self._tenant(), next(self._names)
        manifest = guest(name, evictionStrategy="LiveMigrate") if self.random.random() < 0.7 else vmi_of(vm(name))
        manifest["metadata"]["name"] = name
        reserved = LUNS if "architecture" in manifest["spec"] and self.random.random() < 0.4 else []
        if reserved:
            disks = [{"name": lun, "lun": {"reservation": True}} for lun in reserved]
            manifest["spec"]["domain"]["devices"] = {"disks": disks}
        host = self.random.choice(("node-z-east", "node-z-west"))
        conditions = [{"type": "LiveMigratable", "status": "True"}]
        manifest["status"] = {"phase": "Running", "nodeName": host, "conditions": conditions}
        vmi = self._controller.create(VMIS, manifest, namespace)
        if "architecture" in vmi["spec"]:
            pod = source_of(vmi, host)
        else:
            pod = launcher_of(vmi)
            del pod["spec"]["nodeSelector"]
        pod["metadata"].pop("generateName")
        pod["metadata"]["name"] = f"virt-launcher-{name}-abcde"
        if reserved:
            pod["metadata"]["labels"] |= {f"pr.kubevirt.io/{lun}": "" for lun in reserved}
            pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = "before"
        self._controller.create(PODS, pod, namespace)
        if "architecture" in vmi["spec"]:
            self._running.append((namespace, vmi))

    def migrate(self) -> None:
        namespace, vmi = self._one_of(self._running)
        added = self.random.choice((EAST, WEST, EAST, WEST, None, {"example.com/zone": "nowhere"}))
        evacuates = added is None and self.random.random() < 0.5
        self._migrate(namespace, vmi, added, evacuates=evacuates)

    def _migrate(self, namespace: str, vmi: Json, added: Json | None, *, evacuates: bool = False) -> None:
        asked = migration(vmi["metadata"]["name"], added)
        asked["metadata"] = {"name": next(self._names)}
        if evacuates:
            asked["metadata"]["annotations"] = {"kubevirt.io/evacuationMigration": vmi["status"]["nodeName"]}
        self._admin.create(MIGRATIONS, asked, namespace)
        self._migrations.append((namespace, asked["metadata"]["name"]))

    def exceed_limit(self) -> None:
        """As many migrations as may be unfinished, and soon comes one to a chosen node."""
        vmis = [vmi for namespace, vmi in self._running if namespace == STEADY]
        if not vmis:
            raise _nothing_to_do()
        # KubeVirt denies a second one of a VM, so that this needs several.
        self.random.shuffle(vmis)
        *others, last = itertools.islice(itertools.cycle(vmis), _LIMIT["maxUnfinished"] + 1)
        for vmi in others:
            self._migrate(STEADY, vmi, None)
        time.sleep(SETTLED_SECONDS)
        self._migrate(STEADY, last, self.random.choice((EAST, WEST)))

    def finish_migration(self) -> None:
        namespace, name = self._one_of(self._migrations)
        phase = self.random.choice(("Succeeded", "Failed"))
        self._admin.patch(MIGRATIONS, name, {"status": {"phase": phase}}, namespace, subresource="status")
        self._migrations.remove((namespace, name))

    def evict(self) -> None:
        namespace, vmi = self._one_of(self._running)
        name = f"virt-launcher-{vmi['metadata']['name']}-abcde"
        asked = obj("Eviction", name, namespace=namespace, annotations={"requested-by": DESCHEDULER})
        self._admin.create(PODS, asked, namespace, name=name, subresource="eviction")

    # -- what decides --------------------------------------------------------------------------------------------------

    def change_and_create(self) -> None:
        """What a VM must fit changes, and soon comes a VM that fits it now, or no longer."""
        namespace = self._tenant()
        cpus = 2 if self._demands.get(namespace) == 8 else 8
        change = {"spec": {"requirements": {"cpu": {"guest": cpus}}}}
        self._admin.patch(PREFERENCES, self._demanding, change, namespace)
        self._demands[namespace] = cpus
        # What fits now, and did not before, shows a store that is asked alone.
        time.sleep(self.random.choice((0.0, SETTLED_SECONDS) if cpus == 8 else (0.0, SETTLED_SECONDS, SETTLED_SECONDS)))
        spec: Json = {"preference": {"kind": "VirtualMachinePreference", "name": self._demanding}}
        if self.random.random() < 0.3:
            spec["instancetype"] = {"kind": "VirtualMachineInstancetype", "name": "large"}
            self.create_vm(namespace, **spec)
        else:
            # Its own size, which nobody changes meanwhile, and which no list of instancetypes forbids.
            self.create_vm(namespace, {"cpu": {"sockets": 4}}, **spec)

    def relabel(self) -> None:
        mode = self.random.choice(("enforce", "enforce", "enforce", "warn", "audit", "off", None))
        change = {"metadata": {"labels": {self.random.choice(POLICIES): mode}}}
        self._admin.patch("v1/namespaces", self._fickle(), change)

    def opt_in_and_create(self) -> None:
        """A namespace is switched off and on again, and soon comes a VM."""
        namespace, policy = self._fickle(), self.random.choice((SCHEDULING, INSTANCETYPES))
        for mode in ("off", "enforce"):
            self._admin.patch("v1/namespaces", namespace, {"metadata": {"labels": {policy: mode}}})
            time.sleep(self.random.choice((0.0, SETTLED_SECONDS)))
            self.create_vm(namespace)

    def annotate(self) -> None:
        change = {
            "allowed-instancetypes": self.random.choice(_LISTS),
            "default-instancetype": self.random.choice((None, *_LISTS[1:3])),
            "default-preference": self.random.choice((None, "VirtualMachinePreference/linux")),
        }
        names = self.random.sample(sorted(change), self.random.randint(1, 3))
        annotations = {f"{DOMAIN}/{name}": change[name] for name in names}
        self._admin.patch("v1/namespaces", self._fickle(), {"metadata": {"annotations": annotations}})

    def list_another(self) -> None:
        other = _LISTS[2] if self._list == _LISTS[1] else _LISTS[1]
        change = {"metadata": {"annotations": {f"{DOMAIN}/allowed-instancetypes": other}}}
        self._admin.patch("v1/namespaces", STEADY, change)
        self._listed, self._list = time.monotonic(), other

    def resize(self) -> None:
        size = {"spec": {"cpu": {"guest": self.random.choice((1, 2, 4))}}}
        self._admin.patch(SIZES, self.random.choice(SIZE_NAMES), size, self._tenant())

    def write_settings(self) -> None:
        weights, settings = zip(*_SETTINGS, strict=True)
        self._cluster.write(self.random.choices(settings, weights)[0])

    def _one_of(self, found: list[Any]) -> Any:
        if not found:
            raise _nothing_to_do()
        return self.random.choice(found[-40:])


def _nothing_to_do() -> KubeError:
    return KubeError("nothing to do", 0, "there is none yet", {}, ())


class _User(_Client):
    """One that leaves to KubeVirt's controllers what is theirs: VMIs, launcher pods, and the phases of migrations."""

    def _all_steps(self, number: int) -> Sequence[tuple[int, Callable[[], None]]]:
        theirs = {self.run_vmi.__name__, self.finish_migration.__name__}
        steps = [(weight, step) for weight, step in super()._all_steps(number) if step.__name__ not in theirs]
        return [*steps, (6, self.stop_or_start)]

    def choose(self) -> Callable[[], None]:
        # So that nodes have room.
        return self.delete_vm if len(self._vms) > MOST_VMS else super().choose()

    def migrate(self) -> None:
        self._running = self._all_running()
        super().migrate()

    def evict(self) -> None:
        """As a descheduler does it, or a drain."""
        namespace, vmi = self._one_of(self._all_running())
        pods = self._admin.list(PODS, namespace, labelSelector=f"vm.kubevirt.io/name={vmi['metadata']['name']}")
        name = self._one_of(list(pods))["metadata"]["name"]
        annotations = {"requested-by": DESCHEDULER} if self.random.random() < 0.8 else {}
        asked = obj("Eviction", name, namespace=namespace, annotations=annotations)
        self._admin.create(PODS, asked, namespace, name=name, subresource="eviction")

    def stop_or_start(self) -> None:
        namespace, name = self._one_of(self._vms)
        strategy = self.random.choice(("Always", "Halted"))
        self._admin.patch(VMS, name, {"spec": {"runStrategy": strategy}}, namespace)

    def exceed_limit(self) -> None:
        self._running = self._all_running(STEADY)
        super().exceed_limit()

    def _all_running(self, namespace: str = "") -> list[tuple[str, Json]]:
        """In one namespace."""
        namespace = namespace or self._tenant()
        found = self._admin.list(VMIS, namespace)
        return [(namespace, vmi) for vmi in found if vmi.get("status", {}).get("phase") == "Running"]


def quietly(step: Callable[[], object]) -> None:
    """Does what may fail while a fault is in force."""
    with suppress(KubeError, OSError, http.client.HTTPException):
        step()
