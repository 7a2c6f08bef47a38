"""What doctor checks of the preemption policy: who may preempt without being known, and which VMs it cannot save."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from webhook import names
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, View
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS, Migration, Vmi
from webhook.policies.preemption.pods import PREFIX
from webhook.policies.preemption.settings import PREEMPTION, PreemptionSettings
from webhook.policy import Installed
from webhook.text import abbreviate, pluralize

_SUBJECT: Final = "preemption"
_VMS: Final = "VMs"
# Kubernetes' own roles of what deletes pods so, by whose bindings it is known which users those are.
_SCHEDULER, _TAINT_CONTROLLER = "system:kube-scheduler", "system:controller:node-controller"


class _Role(View, frozen=True):
    kind: str = ""
    name: str = ""


class _Subject(View, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def user(self) -> str:
        """The user name by which the API server knows it; empty: it is a group."""
        if self.kind == "ServiceAccount":
            return f"system:serviceaccount:{self.namespace}:{self.name}"
        return self.name if self.kind == "User" else ""


class RoleBinding(Object, frozen=True):
    """A ClusterRoleBinding (rbac/v1), by what it binds."""

    role_ref: _Role = _Role()
    subjects: list[_Subject] | None = None


BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, RoleBinding
)


@check("preemption")
async def check_preemption(installation: Installed) -> list[Finding]:
    """Look at who preempts, at the VMs of namespaces that enforce the policy, and at the requested migrations."""
    settings = installation.settings.of(PreemptionSettings)
    modes = readable("namespaces", await installation.modes(PREEMPTION))
    if not any(mode in (names.ENFORCE, names.WARN, names.AUDIT) for mode in modes.values()):
        return []
    findings = [*await _check_users(installation, settings)]
    enforced = {name for name, mode in modes.items() if mode == names.ENFORCE}
    if enforced and not settings.request_migrations:
        what = "requestMigrations is off: only VMs that are being migrated already are waited for"
        findings.append(warning("migrations-not-requested", "settings", what, "switch preemption.requestMigrations on"))
    if enforced:
        vmis = readable(_VMS, await installation.reader.all(PLACED_VMIS))
        findings += _check_vms([each for each in vmis if each.meta.namespace in enforced and not each.has_ended])
        findings += _check_migrations(readable("migrations", await installation.reader.all(MIGRATIONS)))
    named = "the settings name all accounts that are bound to Kubernetes' own roles for it"
    others = "others show in audit lines with the reason user-not-known"
    what = f"enforced in {pluralize(len(enforced), 'namespace')}; {named}, and {others}"
    return findings or [ok("in-order", _SUBJECT, what)]


@check("preemption")
async def _check_users(installation: Installed, settings: PreemptionSettings) -> list[Finding]:
    """Users that Kubernetes' own roles let preempt, and whom the settings do not name."""
    bindings = readable("role bindings", await installation.reader.all(BINDINGS))
    return [
        *_unknown(bindings, _SCHEDULER, settings.schedulers, "schedulers", "scheduler"),
        *_unknown(bindings, _TAINT_CONTROLLER, settings.taint_controllers, "taintControllers", "controller of nodes"),
    ]


def _unknown(
    bindings: Sequence[RoleBinding], role: str, known: Collection[str], setting: str, what: str
) -> Iterator[Finding]:
    bound = {
        each.user
        for binding in bindings
        if (binding.role_ref.kind, binding.role_ref.name) == ("ClusterRole", role)
        for each in binding.subjects or ()
    }
    if strangers := sorted(bound - {"", *known}):
        text = f"{abbreviate(strangers)} may act as a {what} (ClusterRole {role}), and preemption.{setting} does not"
        text += " name it, so that VMs do not move when it deletes their pods"
        yield warning("user-unknown", "settings", text, f"add it to preemption.{setting} if it runs as one")


def _check_vms(vmis: Sequence[Vmi]) -> Iterator[Finding]:
    """VMs that cannot move, although their namespace asks for it: to know that before costs nothing."""
    stuck = sorted(f"{each.meta.namespace}/{each.meta.name}" for each in vmis if each.node_name and not each.migratable)
    if stuck:
        what = f"{pluralize(len(stuck), 'VM')} cannot be live-migrated, so that a preemption or a NoExecute taint still"
        todo = "see the condition LiveMigratable of its VMI, or give it a priority that nothing preempts"
        yield warning("vms-cannot-move", _VMS, f"{what} kills them: {abbreviate(stuck)}", todo)


def _check_migrations(migrations: Sequence[Migration]) -> Iterator[Finding]:
    """Requested migrations that have failed, each of which has cost a VM, as far as KubeVirt keeps them."""
    requested = [each for each in migrations if (each.meta.name or "").startswith(PREFIX)]
    failed = sorted(f"{each.meta.namespace}/{each.vmi_name}" for each in requested if each.phase == "Failed")
    if failed:
        what = f"{pluralize(len(failed), 'migration')} of {len(requested)} that were requested failed, of VMs"
        todo = "see why: kubectl describe virtualmachineinstancemigrations"
        yield warning("migrations-failed", "migrations", f"{what} {abbreviate(failed)}", todo)
