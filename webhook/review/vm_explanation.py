"""The shape of an explanation of a VM: what `explain vm -o json` prints.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.admission.decision import Change, Reason
from webhook.k8s.views import View
from webhook.policies.migration.answer import MigrationExplanation, Nodes

SCHEMA: Final = "kubevirt-webhook.github.io/explain-vm/v1alpha1"


class PolicyReport(View, frozen=True):
    """What one policy does with a request.

    Attributes:
        policy: one of the four.
        mode: the mode of the policy in the VM's namespace.
        decision: the decision in a word, as in audit lines.
        reasons: why, each with its code.
        changes: what it changes, or would change in mode ``enforce``.
        warnings: what the sender of the request reads.
    """

    policy: str
    mode: str
    decision: str
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]


class RequestReport(View, frozen=True):
    """A request that is sent for the VM in its life.

    Attributes:
        kind: the kind of the object that it creates.
        policies: what each policy does with it, in the order in which they are called.
    """

    kind: str
    policies: tuple[PolicyReport, ...]

    @property
    def is_denied(self) -> bool:
        """Whether a policy denies it."""
        return any(each.decision == "denied" for each in self.policies)


class FieldReport(View, frozen=True):
    """A value of the VMI.

    Attributes:
        path: for example ``spec.domain.cpu.cores``.
        value: plain JSON, without secrets.
        origin: where it comes from: ``vm`` (or ``vmi``), ``instancetype``, ``preference``, ``cluster settings``,
            ``KubeVirt default`` or ``kubevirt-webhook``.
        name: the instancetype's or preference's; empty for other origins.
        random: KubeVirt makes another value each time.
    """

    path: str
    value: Any
    origin: str
    name: str = ""
    random: bool = False


class NamedReport(View, frozen=True):
    """An instancetype or a preference that takes part.

    Attributes:
        role: ``instancetype`` or ``preference``.
        inferred_from: the volume from which it was inferred; empty: the VM names it.
        injected: kubevirt-webhook chose it, the namespace's default.
    """

    role: str
    kind: str
    name: str
    inferred_from: str
    injected: bool


class VmExplanation(View, frozen=True):
    """The whole explanation.

    Attributes:
        schema: `SCHEMA`.
        kind: ``VirtualMachine``, or ``VirtualMachineInstance`` where no VM stands behind it.
        running_on: the node that it runs on; empty: none.
        scheduler: the scheduler of its next pods; empty: there will be none.
        requests: what the policies do with each request for it, in the order of its life.
        denial: why KubeVirt itself would not create its VMI; empty: it would.
        named: the instancetype and the preference.
        fields: the values of its next VMI, in the VMI's order.
        nodes: the nodes on which it could start, as far as they do not depend on other pods; None: there is no VMI.
        migration: where it could migrate to; None: it does not run.
        gaps: what could not be taken into account, clauses.
    """

    schema: str
    namespace: str
    name: str
    kind: str
    running_on: str
    scheduler: str
    requests: tuple[RequestReport, ...]
    denial: str
    named: tuple[NamedReport, ...]
    fields: tuple[FieldReport, ...]
    nodes: Nodes | None
    migration: MigrationExplanation | None
    gaps: tuple[str, ...]

    @property
    def is_denied(self) -> bool:
        """Whether a policy or KubeVirt would deny the VM or its VMI."""
        vms = ("VirtualMachine", "VirtualMachineInstance")
        return bool(self.denial) or any(each.is_denied for each in self.requests if each.kind in vms)
