"""Guests as a test sees them: VMs of a kernel that tells on its serial console what it has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from hack.guests.guest import INITRAMFS, KERNEL, NAME
from hack.guests.parts import SCHEDULER
from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.migrations import migration
from tests.e2e.support.objects import ensure_namespace
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS, vm
from tests.node.support import IMAGE, NodeInstallation
from webhook.names import (
    DEFAULT_INSTANCETYPE_ANNOTATION,
    EVICTION,
    INSTANCETYPES,
    MIGRATION,
    SCHEDULING,
    policy_label,
)

IMAGES = "GUESTS_IMAGES"
NAMESPACE = "guests"
POLICIES = (SCHEDULING, INSTANCETYPES, MIGRATION, EVICTION)
INSTANCETYPE = "u1.nano"
CONSOLE = "guest-console-log"
# An emulated guest on a machine that runs other things, too.
BOOT_SECONDS = 300.0
MIGRATION_SECONDS = 300.0
LEASE = "kubevirt-scheduler/kubevirt-scheduler"
SETTINGS: Json = {
    "kubevirt": {"namespace": "kubevirt"},
    "schedulers": {"kubevirt": {"healthCheck": f"lease {LEASE}"}},
    "server": {"shutdownSeconds": 5},
}
COUNT = re.compile(r"guest: count=(\d+) cpus=(\d+)")
BOOTED = re.compile(r"guest: booted cpus=(\d+) memory_kib=(\d+) blocks=(\d+) block_bytes=(0x[0-9a-f]+)")


class Inside(NamedTuple):
    """What a guest printed when it had booted.

    Attributes:
        cpus: those that it sees.
        memory_kib: what its kernel has left for programs, in KiB.
    """

    cpus: int
    memory_kib: int


class Guests(NodeInstallation):
    """The cluster with KubeVirt, the webhook and guests."""

    def install_all(self) -> None:
        """Install the webhook with its scheduler."""
        scheduler = ("--with=scheduler", f"--scheduler-image={SCHEDULER}", "--timeout=280")
        self.install(IMAGE, *scheduler)
        self.wait_ready()

    def offer(self) -> None:
        """A namespace that has opted in to every policy, with a default instancetype."""
        labels = {
            policy_label(policy): "enforce" for policy in ("scheduling", "instancetypes", "migration", "eviction")
        }
        ensure_namespace(self.admin, NAMESPACE)
        annotations = {DEFAULT_INSTANCETYPE_ANNOTATION: INSTANCETYPE}
        self.admin.patch("v1/namespaces", NAMESPACE, {"metadata": {"labels": labels, "annotations": annotations}})

        def defaults() -> bool:
            probe = self.admin.create(VMS, guest_vm("probe"), NAMESPACE, dryRun="All")
            chosen = probe["spec"]["template"]["spec"].get("schedulerName")
            return (probe["spec"].get("instancetype") or {}).get("name") == INSTANCETYPE and chosen == "kubevirt"

        eventually(defaults, what="VMs to be given the scheduler and the instancetype", timeout=60)

    def end_all(self) -> None:
        """Delete all guests; returns once their pods are gone."""
        for resource in (VMS, VMIS):
            self.admin.delete_all(resource, NAMESPACE)
        eventually(lambda: not self.admin.list(PODS, NAMESPACE), what="the launcher pods to be gone", timeout=180)
        self.admin.delete_all(MIGRATIONS, NAMESPACE)

    def run_vm(self, name: str, **spec: object) -> None:
        """Create a VM; keywords go into its template's spec."""
        self.admin.create(VMS, guest_vm(name, **spec), NAMESPACE)

    def vmi(self, name: str) -> KubeObject:
        """The VMI of that name."""
        return self.admin.get(VMIS, name, NAMESPACE)

    def node_of(self, name: str) -> str:
        """The node on which KubeVirt says that a guest runs."""
        return str(self.vmi(name)["status"].get("nodeName", ""))

    def launchers(self, name: str) -> list[KubeObject]:
        """The launcher pods of a guest, the oldest first."""
        selector = f"vm.kubevirt.io/name={name}"
        pods = self.admin.list(PODS, NAMESPACE, labelSelector=selector)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def console(self, pod: str) -> str:
        """What a guest wrote to its serial console while a launcher pod ran it; empty where it wrote nothing yet."""
        return self.kubectl("-n", NAMESPACE, "logs", pod, "-c", CONSOLE, check=False).stdout

    def told(self, name: str) -> str:
        """What a guest wrote on all nodes where its pods are still there."""
        return "".join(self.console(pod["metadata"]["name"]) for pod in self.launchers(name))

    def counts(self, name: str) -> list[int]:
        """The seconds that a guest counted, as far as they are known."""
        return [int(count) for count, _ in COUNT.findall(self.told(name))]

    def wait_booted(self, name: str) -> Inside:
        """Wait until a guest tells; returns what it has."""

        def look() -> re.Match[str] | None:
            return BOOTED.search(self.told(name))

        cpus, memory, _, _ = eventually(look, what=f"{name} to boot", timeout=BOOT_SECONDS).groups()
        eventually(lambda: self.vmi(name)["status"].get("phase") == "Running", what=f"{name} to be Running")
        return Inside(int(cpus), int(memory))

    def wait_migratable(self, name: str) -> None:
        """Wait until KubeVirt says that a guest can be migrated."""
        wanted = {"type": "LiveMigratable", "status": "True"}.items()
        self.admin.wait(
            VMIS,
            name,
            NAMESPACE,
            until=lambda vmi: any(wanted <= one.items() for one in vmi["status"].get("conditions", ())),
            what=f"{name} to be migratable",
        )

    def migrate(self, name: str, added: dict[str, str] | None = None) -> KubeObject:
        """Begin a migration; the answer is the stored object.

        Raises:
            KubeError: it is denied.
        """
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

    def count_on(self, name: str, more: int = 3) -> list[int]:
        """Wait until a guest has counted so many seconds more; returns all of them."""
        before = max(self.counts(name), default=0)
        eventually(lambda: max(self.counts(name), default=0) >= before + more, what=f"{name} to count on", timeout=120)
        return self.counts(name)

    def denial(self, name: str, added: dict[str, str]) -> str:
        """The message with which a migration is denied; empty: it is not."""
        try:
            self.migrate(name, added)
        except KubeError as error:
            return error.message
        return ""


def guest_vm(name: str, **spec: object) -> Json:
    """A VM whose guest tells; keywords go into its template's spec."""
    made = vm(name)
    container = {"image": NAME, "imagePullPolicy": "IfNotPresent", "kernelPath": KERNEL, "initrdPath": INITRAMFS}
    boot = {"container": container, "kernelArgs": "console=ttyS0 quiet"}
    devices = {"autoattachGraphicsDevice": False, "autoattachPodInterface": False}
    template = {
        "domain": {"firmware": {"kernelBoot": boot}, "devices": devices},
        # It does not listen to the power button.
        "terminationGracePeriodSeconds": 0,
    }
    made["spec"]["template"]["spec"] = {**template, **spec}
    return made


def gaps(counts: Iterable[int]) -> list[tuple[int, int]]:
    """Where a guest did not count by one: what it counted before and after."""
    found = list(counts)
    return [(before, after) for before, after in itertools.pairwise(found) if after != before + 1]
