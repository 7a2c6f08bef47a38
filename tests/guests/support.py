"""Guests as a test sees them: VMs of a kernel that tells on its serial console what it has."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hack.guests.guest import INITRAMFS, KERNEL, NAME
from hack.guests.parts import SCHEDULER
from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.kube import path as url
from tests.e2e.support.migrations import migration
from tests.e2e.support.objects import ensure_namespace, has_condition
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS, vm
from tests.node.support import IMAGE, NodeInstallation
from webhook.names import DEFAULT_INSTANCETYPE_ANNOTATION, policy_label
from webhook.policies.registry import BY_NAME

IMAGES = "GUESTS_IMAGES"
NAMESPACE = "guests"
OTHER = {"node-1": "node-2", "node-2": "node-1"}
INSTANCETYPE = "u1.nano"
CONSOLE = "guest-console-log"
# virt-handler gives the start of a guest 20 seconds, and takes one that is slower for one that has ended.
BOOTS_AT_ONCE = 2
# An emulated guest on a machine that runs other things, too.
BOOT_SECONDS = 300.0
MIGRATION_SECONDS = 300.0
LEASE = "kubevirt-scheduler/kubevirt-scheduler"
SETTINGS: Json = {
    "kubevirt": {"namespace": "kubevirt"},
    "schedulers": {"kubevirt": {"healthCheck": f"lease {LEASE}"}},
    "server": {"shutdownSeconds": 5},
    "driftScan": {"everyMinutes": 1},
    "preemption": {"requestMigrations": True},
}
COUNT = re.compile(r"guest: count=(\d+) cpus=(\d+)")
BOOTED = re.compile(r"guest: booted cpus=(\d+) memory_kib=(\d+) blocks=(\d+) block_bytes=(0x[0-9a-f]+)")
STAMPED = re.compile(r"^(\S+) guest: count=", re.MULTILINE)


class Inside(NamedTuple):
    """What a guest printed when it had booted.

    Attributes:
        cpus: those that it sees.
        memory_kib: what its kernel has left for programs, in KiB.
    """

    cpus: int
    memory_kib: int


class Times(NamedTuple):
    """How long a migration took, in seconds; KubeVirt writes whole ones.

    Attributes:
        start: from the first moment in which KubeVirt prepares the target pod until memory is copied.
        copy: until the guest runs on the target.
        end: until the migration has succeeded.
    """

    start: float
    copy: float
    end: float


class Guests(NodeInstallation):
    def __init__(self, directory: Path, binaries: Path) -> None:
        super().__init__(directory, binaries)
        self.settings.write_text(json.dumps(SETTINGS))
        # By guest and pod.
        self._followed: dict[str, dict[str, tuple[Path, subprocess.Popen[bytes]]]] = {}

    def install_all(self) -> None:
        scheduler = ("--with=scheduler", f"--scheduler-image={SCHEDULER}", "--timeout=270")
        self.install(IMAGE, *scheduler)
        self.wait_ready()

    def offer(self) -> None:
        """A namespace that has opted in to every policy, with a default instancetype."""
        labels = {policy_label(policy): "enforce" for policy in BY_NAME}
        ensure_namespace(self.admin, NAMESPACE)
        annotations = {DEFAULT_INSTANCETYPE_ANNOTATION: INSTANCETYPE}
        self.admin.patch("v1/namespaces", NAMESPACE, {"metadata": {"labels": labels, "annotations": annotations}})
        self.wait_defaults(scheduler="kubevirt")

    def wait_defaults(self, scheduler: str | None, instancetype: str | None = INSTANCETYPE) -> None:
        """Wait until new VMs are given this scheduler and this instancetype; None: none."""

        def look() -> bool:
            probe = self.admin.create(VMS, guest_vm("probe"), NAMESPACE, dryRun="All")
            chosen = probe["spec"]["template"]["spec"].get("schedulerName")
            return ((probe["spec"].get("instancetype") or {}).get("name"), chosen) == (instancetype, scheduler)

        eventually(look, what=f"VMs to be given {scheduler} and {instancetype}", timeout=90)

    def end_all(self) -> None:
        """Delete all guests; returns once nothing of them is left."""
        for resource in (VMS, VMIS):
            self.admin.delete_all(resource, NAMESPACE)
        for resource in (PODS, VMIS, VMS):
            eventually(partial(self._has_no, resource), what=f"the {resource} of guests to be gone", timeout=180)
        for _, reader in (each for pods in self._followed.values() for each in pods.values()):
            reader.kill()
            reader.wait()
        self._followed.clear()
        self.admin.delete_all(MIGRATIONS, NAMESPACE)
        eventually(partial(self._has_no, MIGRATIONS), what="the migrations to be gone", timeout=60)

    def _has_no(self, resource: str) -> bool:
        return not self.admin.list(resource, NAMESPACE)

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment; returns once so many are ready, and no others exist."""
        self.kubectl("-n", namespace, "scale", f"deployment/{name}", f"--replicas={replicas}")

        def look() -> bool:
            status = self.admin.get("apps/v1/deployments", name, namespace)["status"]
            pods = self.admin.list(PODS, namespace, labelSelector=f"app.kubernetes.io/name={name}")
            return bool(status.get("readyReplicas", 0) == replicas == len(pods))

        eventually(look, what=f"{name} to have {replicas} replicas", timeout=120)

    def run_vm(self, name: str, domain: Mapping[str, object] | None = None, **spec: object) -> KubeObject:
        return self.admin.create(VMS, guest_vm(name, domain, **spec), NAMESPACE)

    def start(self, *names: str, domain: Mapping[str, object] | None = None, **spec: object) -> None:
        """Create VMs, as `guest_vm` makes each; returns once their guests tell and can be migrated."""
        for pair in (names[first : first + BOOTS_AT_ONCE] for first in range(0, len(names), BOOTS_AT_ONCE)):
            for name in pair:
                self.run_vm(name, domain, **spec)
            for name in pair:
                self.wait_booted(name)
        for name in names:
            self.wait_migratable(name)

    def vmi(self, name: str) -> KubeObject:
        return self.admin.get(VMIS, name, NAMESPACE)

    def node_of(self, name: str) -> str:
        return str(self.vmi(name)["status"].get("nodeName", ""))

    def launchers(self, name: str) -> list[KubeObject]:
        """The launcher pods of a guest, the oldest first."""
        selector = f"vm.kubevirt.io/name={name}"
        pods = self.admin.list(PODS, NAMESPACE, labelSelector=selector)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def launcher(self, name: str) -> KubeObject:
        """The pod in which a guest runs: the newest on its node, which a guest may have left and come back to."""
        node = self.node_of(name)
        return [pod for pod in self.launchers(name) if pod["spec"].get("nodeName") == node][-1]

    def scheduler_of(self, pod: Mapping[str, Any]) -> str:
        which = f"regarding.name={pod['metadata']['name']},reason=Scheduled"
        events = self.admin.list("events.k8s.io/v1/events", NAMESPACE, fieldSelector=which)
        (scheduler,) = {event["reportingController"] for event in events}
        return str(scheduler)

    def follow(self, name: str) -> None:
        """Keep what a guest writes on its present node from here on, also after its pod is deleted, as a drain does."""
        pod = self.launcher(name)["metadata"]["name"]
        file = self.directory / f"{pod}.console"
        which = ("-n", NAMESPACE, "logs", pod, f"--container={CONSOLE}", "--timestamps", "--follow")
        command = [self._kubectl(), f"--kubeconfig={self.kubeconfig_for(*ADMIN)}", *which]
        with file.open("wb") as opened:
            reader = subprocess.Popen(command, stdout=opened, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self._followed.setdefault(name, {})[pod] = (file, reader)

    def console(self, pod: str) -> str:
        """What a guest wrote to its serial console while a launcher pod ran it, each line behind its time."""
        try:
            return self.admin.text(f"{url(PODS, NAMESPACE, pod, 'log')}?container={CONSOLE}&timestamps=true")
        except KubeError:
            return ""

    def told(self, name: str) -> str:
        """What a guest wrote on all nodes where its pods are still there, or have been followed."""
        pods = [pod["metadata"]["name"] for pod in self.launchers(name)]
        gone = [file.read_text() for pod, (file, _) in self._followed.get(name, {}).items() if pod not in pods]
        return "".join([*gone, *map(self.console, pods)])

    def counts(self, name: str) -> list[int]:
        """The seconds that a guest counted, as far as they are known."""
        return [int(count) for count, _ in COUNT.findall(self.told(name))]

    def longest_pause(self, name: str) -> float:
        """The longest time between two lines of a guest, which writes one each second, by the nodes' clock."""
        stamps = [dt.datetime.fromisoformat(stamp) for stamp in STAMPED.findall(self.told(name))]
        return max((after - before).total_seconds() for before, after in itertools.pairwise(stamps))

    def wait_booted(self, name: str) -> Inside:
        """Wait until a guest tells; returns what it has."""

        def look() -> re.Match[str] | None:
            return BOOTED.search(self.told(name))

        cpus, memory, _, _ = eventually(look, what=f"{name} to boot", timeout=BOOT_SECONDS).groups()
        eventually(lambda: self.vmi(name)["status"].get("phase") == "Running", what=f"{name} to be Running")
        return Inside(int(cpus), int(memory))

    def wait_migratable(self, name: str) -> None:
        is_migratable = lambda vmi: has_condition(vmi, "LiveMigratable")
        self.admin.wait(VMIS, name, NAMESPACE, until=is_migratable, what=f"{name} to be migratable")

    def migrate(self, name: str, added: dict[str, str] | None = None) -> KubeObject:
        """Begin a migration; the answer is the stored object, or the KubeError of its denial."""
        return self.admin.create(MIGRATIONS, migration(name, added), NAMESPACE)

    def wait_migrated(self, made: KubeObject) -> KubeObject:
        """Wait until a migration has succeeded; returns it. One that failed is an error at once."""

        def look() -> KubeObject | None:
            found = self.admin.get(MIGRATIONS, made["metadata"]["name"], NAMESPACE)
            phase = found.get("status", {}).get("phase")
            if phase == "Failed":
                vmi = self.vmi(found["spec"]["vmiName"])
                raise RuntimeError(f"the migration failed: {vmi['status'].get('migrationState')}")
            return found if phase == "Succeeded" else None

        return eventually(look, what="the migration to succeed", timeout=MIGRATION_SECONDS)

    def migrations(self, name: str = "") -> list[KubeObject]:
        found = self.admin.list(MIGRATIONS, NAMESPACE)
        return [each for each in found if name in ("", each["spec"]["vmiName"])]

    def count_on(self, name: str, more: int = 3) -> list[int]:
        """Wait until a guest has counted so many seconds more; returns all of them."""
        before = max(self.counts(name), default=0)
        eventually(lambda: max(self.counts(name), default=0) >= before + more, what=f"{name} to count on", timeout=120)
        return self.counts(name)

    def explain(self, *arguments: str) -> Any:
        return json.loads(self.run("explain", *arguments, "-o", "json", check=False).stdout)


def guest_vm(name: str, domain: Mapping[str, object] | None = None, **spec: object) -> Json:
    """A VM whose guest tells; ``domain`` goes into its template's domain, other keywords into its template's spec."""
    made = vm(name)
    container = {"image": NAME, "imagePullPolicy": "IfNotPresent", "kernelPath": KERNEL, "initrdPath": INITRAMFS}
    boot = {"container": container, "kernelArgs": "console=ttyS0 quiet"}
    devices = {"autoattachGraphicsDevice": False, "autoattachPodInterface": False}
    made["spec"]["template"]["spec"] = {
        "domain": {"firmware": {"kernelBoot": boot}, "devices": devices, **(domain or {})},
        # It does not listen to the power button.
        "terminationGracePeriodSeconds": 0,
        **spec,
    }
    return made


def gaps(counts: Iterable[int]) -> list[tuple[int, int]]:
    """Where a guest did not count by one: what it counted before and after."""
    found = list(counts)
    return [(before, after) for before, after in itertools.pairwise(found) if after != before + 1]


def times_of(vmi: Mapping[str, Any], made: Mapping[str, Any]) -> Times:
    """How long a guest's last migration took, which has succeeded."""
    state = vmi["status"]["migrationState"]
    assert state["migrationUid"] == made["metadata"]["uid"]
    moments = phases_of(made)
    begin, end = (dt.datetime.fromisoformat(state[f"{name}Timestamp"]) for name in ("start", "end"))
    start = (begin - moments["Scheduling"]).total_seconds()
    return Times(start, (end - begin).total_seconds(), (moments["Succeeded"] - end).total_seconds())


def phases_of(made: Mapping[str, Any]) -> dict[str, dt.datetime]:
    entered = made["status"]["phaseTransitionTimestamps"]
    return {each["phase"]: dt.datetime.fromisoformat(each["phaseTransitionTimestamp"]) for each in entered}


def most_at_once(made: Iterable[Mapping[str, Any]]) -> int:
    """How many migrations had a target pod at the same time at most: from their scheduling to their end."""
    moments = [phases_of(each) for each in made]
    changes = sorted(change for each in moments for change in ((each["Scheduling"], 1), (each["Succeeded"], -1)))
    return max(itertools.accumulate(change for _, change in changes))
