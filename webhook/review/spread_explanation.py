"""Which topology spread constraints the next launcher pods of a VM get, and why: for people and for tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision
from webhook.errors import InputError
from webhook.facts import Facts, ObjectKey
from webhook.k8s.client.resources import Resource
from webhook.k8s.pods import SpreadConstraint
from webhook.kubevirt.resources import VMIS
from webhook.kubevirt.views import VirtualMachine, VirtualMachineInstance
from webhook.policies.common.required_facts import read
from webhook.policies.scheduling import spread
from webhook.review import scope
from webhook.settings.snapshot import Settings

SCHEMA: Final = "kubevirt-webhook.github.io/explain-spread/v1alpha1"

_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, VirtualMachine)


class SpreadAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The whole explanation; no field is removed or changes its meaning under the same `SCHEMA`.

    Attributes:
        schema: `SCHEMA`.
        namespace: the VM's namespace.
        name: the VM's name.
        kind: the object that was explained: ``VirtualMachineInstance`` where there is one, else ``VirtualMachine``.
        mode: mode of the namespace: ``enforce``, ``warn``, ``audit`` or ``off``.
        code: one of `names.Code`.
        reason: the code in words, a clause.
        injected: what kubevirt-webhook writes into the pods, or would write where the mode only observes.
        present: what the VM's owner wrote, or an earlier injection.
    """

    schema: str
    namespace: str
    name: str
    kind: str
    mode: str
    code: str
    reason: str
    injected: list[dict[str, Any]]
    present: list[dict[str, Any]]

    @property
    def is_spread(self) -> bool:
        """Whether the pods get constraints, from the owner or from this server."""
        return bool(self.present) or (bool(self.injected) and self.mode == names.ENFORCE)


def explain(namespace: str, name: str, settings: Settings, facts: Facts) -> SpreadAnswer:
    """Explain it, by the rules of `spread.pods`.

    Raises:
        InputError: there is no such VM.
        Unreadable: something that it depends on cannot be read.
        NotRead: a fact has not been read yet.
    """
    found, own = _find_vmi(namespace, name, facts)
    scheduling = settings.scheduling
    where = scope.of_namespace(
        names.SCHEDULING, "enforce", namespace, facts, scheduling.cluster_wide, settings.excluded_namespaces
    )
    if where.reason is None:
        decision = spread.launchers_of(found, scheduling.under(where.parameters), annotation=own)
        code, reason = decision.code, decision.reasons[0].text
    else:
        decision, code, reason = None, where.reason.code, where.reason.text
    return SpreadAnswer(
        schema=SCHEMA,
        namespace=namespace,
        name=name,
        kind="VirtualMachine" if isinstance(found, VirtualMachine) else "VirtualMachineInstance",
        mode=where.mode,
        code=code,
        reason=reason,
        injected=_injected_constraints(decision),
        present=_present(found),
    )


def _find_vmi(namespace: str, name: str, facts: Facts) -> tuple[VirtualMachineInstance | VirtualMachine, object]:
    """The VMI, or else the VM, and the owner's annotation."""
    facts.need(ObjectKey(VMIS, namespace, name), ObjectKey(_VMS, namespace, name))
    vmi = read(facts, ObjectKey(VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")
    if vmi:
        return vmi, vmi.meta.annotation(names.SPREAD_ANNOTATION)
    vm = read(facts, ObjectKey(_VMS, namespace, name), f"VirtualMachine {namespace}/{name}")
    if vm is None:
        raise InputError(f"VirtualMachine {namespace}/{name} does not exist", fix="check the name and the namespace")
    metadata = vm.template.metadata if vm.template else None
    return vm, metadata.annotation(names.SPREAD_ANNOTATION) if metadata else None


def _injected_constraints(decision: Decision | None) -> list[dict[str, Any]]:
    """The constraints that a decision writes; none where it writes nothing."""
    value = decision.notes.get("spread") if decision else None
    return spread.constraints(value) if isinstance(value, str) else []


def _present(found: VirtualMachineInstance | VirtualMachine) -> list[dict[str, Any]]:
    written: Sequence[SpreadConstraint | dict[str, Any]] | None = None
    if isinstance(found, VirtualMachine):
        if found.template and found.template.spec:
            written = found.template.spec.topology_spread_constraints
    elif found.spec:
        written = found.spec.topology_spread_constraints
    plain: list[dict[str, Any]] = msgspec.to_builtins(written or [])
    return [{key: value for key, value in one.items() if value is not None} for one in plain]
