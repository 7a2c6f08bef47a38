"""What changes in the cluster, at a steady rate: VMs come and go, are changed, migrate and are evicted; admins change
namespaces, sizes and nodes, kubelets report, settings are written and the CA is rotated.
"""

from __future__ import annotations

import copy
import http.client
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bench.churn.cluster import POLICIES, SETTINGS, SIZE_NAMES, ChurnInstallation, ChurnReplica, Machine, Workloads
from bench.churn.cluster import heartbeat as condition
from tests.e2e.support.kube import KubeError
from tests.e2e.support.migrations import migration
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import INSTANCETYPES, MIGRATIONS, PODS, VMIS, VMS, instancetype

_DESCHEDULER: Final = "sigs.k8s.io/descheduler"
# One has no nodes, so that a migration is denied; None adds no selector.
_ZONES: Final = ("eu-a", "eu-b", "eu-c", "eu-none", None)
_OTHER_SETTINGS: Final = {**SETTINGS, "migration": {"maxUnfinished": 50}}
# Of changes of namespaces, sizes and nodes, together.
_ADMIN_RATE: Final = 0.5
_LEASE_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Rates:
    """How much happens.

    Attributes:
        steps: of owners and KubeVirt in a second; each is one to three requests that are reviewed.
        heartbeats: of kubelets in a second.
        settings: seconds between two changes of the settings.
        rotations: seconds between two rotations of the CA.
    """

    steps: float
    heartbeats: float
    settings: float
    rotations: float


@dataclass
class Record:
    """What has happened since it was last taken.

    Attributes:
        seconds: of each request that was reviewed.
        counts: of all that was done, by what it was and, if it was denied, the status.
        marks: when settings were written and the CA was rotated, in seconds of the monotonic clock.
    """

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    marks: list[tuple[float, str]] = field(default_factory=list)


class Recorder:
    """Takes what clients in several threads saw."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._record = Record()

    def answered(self, what: str, seconds: float) -> None:
        """A request that was reviewed has its answer."""
        with self._lock:
            self._record.seconds.append(seconds)
            self._record.counts[what] += 1

    def count(self, what: str) -> None:
        """Something was done that is not reviewed."""
        with self._lock:
            self._record.counts[what] += 1

    def mark(self, what: str) -> None:
        """Something rare was done."""
        with self._lock:
            self._record.marks.append((time.monotonic(), what))
            self._record.counts[what] += 1

    def take(self) -> Record:
        """What there is, which begins anew."""
        with self._lock:
            taken, self._record = self._record, Record()
        return taken


class Churn:
    """Clients in threads of their own. A context manager: left, all have ended.

    Attributes:
        failure: what ended a client that should have gone on.

    Args:
        workloads: makes VMs.
        machines: that there are.
        installation: whose CA is rotated.
        replica: whose settings are written.
        recorder: gets what happens.
        rates: how much of it.
    """

    def __init__(
        self,
        workloads: Workloads,
        machines: Sequence[Machine],
        installation: ChurnInstallation,
        replica: ChurnReplica,
        recorder: Recorder,
        rates: Rates,
    ) -> None:
        self._workloads: Final = workloads
        self._machines: Final = deque(machines)
        self._installation: Final = installation
        self._replica: Final = replica
        self._recorder: Final = recorder
        self._over: Final = threading.Event()
        self._choosing: Final = threading.Lock()
        self.failure: Exception | None = None
        self._migrations: Final[deque[tuple[str, str]]] = deque()
        self._settings = SETTINGS
        self._next_node = 0
        self._namespace = 0
        owner: list[tuple[int, Callable[[random.Random], None]]] = [
            (5, self._renew_vm),
            (6, self._overwrite_vm),
            (4, self._migrate),
            (3, self._evict),
        ]
        admin: list[tuple[int, Callable[[random.Random], None]]] = [
            (4, self._relabel),
            (3, self._annotate),
            (3, self._resize),
            (1, self._renew_size),
            (3, self._label_node),
            (1, self._remake_node),
            (1, self._renew_namespace),
        ]
        self._threads: Final = [
            self._client("owner-1", rates.steps / 2, owner),
            self._client("owner-2", rates.steps / 2, owner),
            self._client("admin", _ADMIN_RATE, admin),
            self._client("kubelets", rates.heartbeats, [(1, self._heartbeat)]),
            self._client("leader", 1 / _LEASE_SECONDS, [(1, self._renew_lease)], regular=True),
            self._client("settings", 1 / rates.settings, [(1, self._write_settings)], regular=True),
            self._client("rotation", 1 / rates.rotations, [(1, self._rotate)], regular=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _client(
        self, name: str, rate: float, steps: list[tuple[int, Callable[[random.Random], None]]], *, regular: bool = False
    ) -> threading.Thread:
        """Does steps at a rate, on average or exactly; what failed is counted."""
        dice = random.Random(name)  # noqa: S311 - nothing is secret
        weights, choices = [weight for weight, _ in steps], [step for _, step in steps]

        def run() -> None:
            due = time.monotonic()
            while True:
                due += 1 / rate if regular else dice.expovariate(rate)
                # After a pause of the machine it goes on from now: what was not done is not made up for.
                due = max(due, time.monotonic() - 1)
                if self._over.wait(max(0.0, due - time.monotonic())):
                    return
                step = dice.choices(choices, weights)[0]
                try:
                    step(dice)
                except KubeError as error:
                    self._recorder.count(f"{_words(step)} stopped: {error.status}")
                except (OSError, http.client.HTTPException) as error:
                    self._recorder.count(f"{_words(step)} stopped: {type(error).__name__}")
                except Exception as error:  # noqa: BLE001 - the run fails by it
                    # Without this client it would be another load.
                    self.failure = error
                    return

        return threading.Thread(target=run, name=name, daemon=True)

    # -- what is reviewed ----------------------------------------------------------------------------------------------

    def _renew_vm(self, dice: random.Random) -> None:
        """One VM goes, and one comes."""
        self._workloads.remove(self._take(dice))
        self._machines.append(self._workloads.make(dice.choice(self._workloads.size.tenants), dice))

    def _overwrite_vm(self, dice: random.Random) -> None:
        """As `kubectl replace` does it: the whole spec, without what a webhook wrote into it."""
        machine = self._look(dice)
        found = self._workloads.admin.get(VMS, machine.name, machine.namespace)
        changed = copy.deepcopy(dict(found))
        changed["spec"]["template"]["metadata"].setdefault("labels", {})["step"] = str(dice.randrange(1000))
        changed["spec"]["template"]["spec"].pop("schedulerName", None)
        changed["metadata"]["annotations"] = {}
        self._workloads.timed("update VM", lambda: self._workloads.admin.replace(VMS, changed))

    def _migrate(self, dice: random.Random) -> None:
        """A migration is asked for, and the oldest of eleven is done."""
        machine, zone = self._look(dice), dice.choice(_ZONES)
        asked = migration(machine.name, {"topology.kubernetes.io/zone": zone} if zone else None)
        admin = self._workloads.admin
        made = self._workloads.timed("create migration", lambda: admin.create(MIGRATIONS, asked, machine.namespace))
        self._migrations.append((machine.namespace, made["metadata"]["name"]))
        if len(self._migrations) > 10:
            namespace, name = self._migrations.popleft()
            phase = {"status": {"phase": dice.choice(("Succeeded", "Failed"))}}
            admin.patch(MIGRATIONS, name, phase, namespace, subresource="status")
            admin.delete(MIGRATIONS, name, namespace)

    def _evict(self, dice: random.Random) -> None:
        """The descheduler evicts a launcher pod. Where that is allowed the pod is gone, and comes again."""
        machine = self._look(dice)
        annotations = {"requested-by": _DESCHEDULER}
        asked = obj("Eviction", machine.pod, namespace=machine.namespace, annotations=annotations)
        admin = self._workloads.admin
        self._workloads.timed(
            "evict pod",
            lambda: admin.create(PODS, asked, machine.namespace, name=machine.pod, subresource="eviction"),
        )
        admin.delete(PODS, machine.pod, machine.namespace, gracePeriodSeconds="0")
        self._workloads.launch(machine, admin.get(VMIS, machine.name, machine.namespace))

    def _take(self, dice: random.Random) -> Machine:
        """A VM that no other thread takes."""
        with self._choosing:
            self._machines.rotate(dice.randrange(len(self._machines)))
            return self._machines.popleft()

    def _look(self, dice: random.Random) -> Machine:
        """A VM that another thread may take meanwhile."""
        with self._choosing:
            return dice.choice(self._machines)

    # -- what decides --------------------------------------------------------------------------------------------------

    def _fickle(self, dice: random.Random) -> str:
        """One of the namespaces that admins change; most VMs are in others."""
        return dice.choice(self._workloads.size.tenants[: max(1, len(self._workloads.size.tenants) // 5)])

    def _relabel(self, dice: random.Random) -> None:
        change = {"metadata": {"labels": {dice.choice(POLICIES): dice.choice(("enforce", "enforce", "warn", "audit"))}}}
        self._workloads.admin.patch("v1/namespaces", self._fickle(dice), change)
        self._recorder.count("label namespace")

    def _annotate(self, dice: random.Random) -> None:
        default = dice.choice((None, "VirtualMachineInstancetype/small", "VirtualMachineInstancetype/large"))
        change = {"metadata": {"annotations": {f"{DOMAIN}/default-instancetype": default}}}
        self._workloads.admin.patch("v1/namespaces", self._fickle(dice), change)
        self._recorder.count("annotate namespace")

    def _resize(self, dice: random.Random) -> None:
        size = {"spec": {"cpu": {"guest": dice.choice((1, 2, 4))}}}
        namespace = dice.choice(self._workloads.size.tenants)
        self._workloads.admin.patch(INSTANCETYPES, dice.choice(SIZE_NAMES), size, namespace)
        self._recorder.count("change instancetype")

    def _renew_size(self, dice: random.Random) -> None:
        namespace, name = dice.choice(self._workloads.size.tenants), f"size-{dice.randrange(10**9)}"
        self._workloads.admin.create(INSTANCETYPES, instancetype(name, cluster=False), namespace)
        self._workloads.admin.delete(INSTANCETYPES, name, namespace)
        self._recorder.count("create and delete instancetype")

    def _label_node(self, dice: random.Random) -> None:
        change = {
            "metadata": {"labels": {"example.com/generation": str(dice.randrange(5))}},
            "spec": {"unschedulable": dice.random() < 0.1 or None},
        }
        self._workloads.admin.patch("v1/nodes", self._workloads.node(dice), change)
        self._recorder.count("label node")

    def _remake_node(self, dice: random.Random) -> None:
        self._workloads.remake_node(dice.choice(self._workloads.size.hosts))
        self._recorder.count("delete and create node")

    def _renew_namespace(self, _dice: random.Random) -> None:
        """One that opts in comes, and the one before goes, as the controller manager has it go."""
        admin = self._workloads.admin
        admin.create("v1/namespaces", obj("Namespace", f"new-{self._namespace + 1}", labels={POLICIES[0]: "enforce"}))
        if self._namespace:
            name = f"new-{self._namespace}"
            found: Any = admin.delete("v1/namespaces", name)
            found["spec"]["finalizers"] = []
            admin.replace("v1/namespaces", found, subresource="finalize")
        self._namespace += 1
        self._recorder.count("create and delete namespace")

    def _heartbeat(self, _dice: random.Random) -> None:
        self._next_node = (self._next_node + 1) % self._workloads.size.nodes
        name = f"node-{self._next_node:05}"
        self._workloads.admin.patch("v1/nodes", name, {"status": condition()}, subresource="status")
        self._recorder.count("heartbeat of a node")

    def _renew_lease(self, _dice: random.Random) -> None:
        self._workloads.renew()

    def _write_settings(self, _dice: random.Random) -> None:
        self._settings = SETTINGS if self._settings is _OTHER_SETTINGS else _OTHER_SETTINGS
        self._replica.write(self._settings)
        self._recorder.mark("settings written")

    def _rotate(self, _dice: random.Random) -> None:
        self._installation.rotate()
        self._recorder.mark("CA rotated")


def _words(step: Callable[..., None]) -> str:
    return step.__name__.strip("_").replace("_", " ")
