"""New VMIs: what KubeVirt reads from the VMI itself, and the record of what their launcher pods are to get.

A VMI is created at each start of a VM, with what VM, instancetype and preference say. What it gets here stays until the
VM stops, and RestartRequired doesn't know of it: virt-controller compares the VM with the VM of the last start.

A default that limits nodes is only recorded, in an annotation that KubeVirt copies to every launcher pod of the VMI. So
a VM keeps through all its migrations what was in force at its start, and one that was admitted later leaves no
migration without a node.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.admission.decision import Decision, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import Unavailable, quote
from webhook.facts import Facts, NodesKey, ObjectKey
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.k8s.types.selectors import Expression
from webhook.placement.index import NodeIndex
from webhook.placement.requirements import Label, Origin, Requirements
from webhook.policies.common.injected_defaults import Choice
from webhook.policies.defaults import reasons, rows
from webhook.policies.defaults.rows import Default, text_of
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.views import DefaultedVmi, has_opted_out

PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, Object)
# These are not models of a CPU, and every node that takes VMs has them.
_OF_HOSTS: Final = ("host-model", "host-passthrough")


async def default_vmi(
    vmi: DefaultedVmi, request: Request[DefaultedVmi], facts: Facts, settings: DefaultsSettings
) -> Decision:
    """Write the defaults into a new VMI."""
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a VMI's spec", request.operation))
    if vmi.spec is None:
        return allow(reasons.none)
    if has_opted_out(vmi):
        return allow(reasons.opted_out)
    decisions = [_record(vmi, default, value) for default, value in records_of(settings) if value]

    async def decide(default: Default, text: str, why_not: Decision | None = None) -> None:
        async def choose() -> Choice | Decision:
            return why_not or Choice(text, reasons.injected(rows.field_of(default)))

        decisions.append(await default.at_create(vmi, default.in_objects, settings, choose))

    if settings.eviction_strategy:
        await decide(rows.EVICTION_STRATEGY, settings.eviction_strategy)
    if settings.termination_grace_period_seconds is not None:
        await decide(rows.GRACE_PERIOD, str(settings.termination_grace_period_seconds))
    if settings.priority_class_name:
        await decide(rows.PRIORITY_CLASS, settings.priority_class_name, await _without_class(vmi, facts, settings))
    # The nodes come last: their index goes on changing while something else is awaited.
    if settings.cpu_model:
        await decide(rows.CPU_MODEL, settings.cpu_model, await _without_model(vmi, facts, settings))
    return rows.join(decisions, settings)


def records_of(settings: DefaultsSettings) -> tuple[tuple[Default, Any], ...]:
    """The defaults that limit nodes, with the values that are recorded in a new VMI, plain JSON; empty: none is."""
    required = settings.node_affinity.expressions
    return (
        (rows.NODE_SELECTOR, dict(settings.node_selector)),
        (rows.REQUIRED_AFFINITY, [{"matchExpressions": required}] if required else []),
    )


def _record(vmi: DefaultedVmi, default: Default, value: object) -> Decision:
    name = rows.field_of(default)
    decision = default.record(vmi, Choice(text_of(value), reasons.recorded(name)), default.in_objects)
    return decision if decision.changes else allow(reasons.present(name))


async def _without_class(vmi: DefaultedVmi, facts: Facts, settings: DefaultsSettings) -> Decision | None:
    """Why the default PriorityClass is not set; None if it is. The API server denies pods whose class is missing."""
    name = settings.priority_class_name
    if vmi.spec and vmi.spec.priority_class_name:
        return None
    found = await facts.get(ObjectKey(PRIORITY_CLASSES, "", name))
    if isinstance(found, Unavailable):
        what = f"the default priorityClassName {name} is not set, because the PriorityClass cannot be read"
        return allow(common.lookup_failed(what, found.why), warn=True)
    if found is None:
        why = f"PriorityClass {name} does not exist"
        return allow(reasons.unusable(rows.field_of(rows.PRIORITY_CLASS), why), warn=True)
    return None


async def _without_model(vmi: DefaultedVmi, facts: Facts, settings: DefaultsSettings) -> Decision | None:
    """Why the default CPU model is not set; None if it is. A launcher pod waits for a node that has the model."""
    model, spec = settings.cpu_model, vmi.spec
    if vmi.is_received:
        return allow(reasons.received)
    if model in _OF_HOSTS or (spec and spec.domain and spec.domain.cpu and spec.domain.cpu.model):
        return None
    nodes = await facts.get(NodesKey())
    if not isinstance(nodes, NodeIndex):
        why = nodes.why if isinstance(nodes, Unavailable) else "there are none"
        what = f"the default CPU model {model} is not set, because nodes cannot be read"
        return allow(common.lookup_failed(what, why), warn=True)
    required: Requirements = (Label(Origin.KUBEVIRT, Expression.equals(f"cpu-model.node.kubevirt.io/{model}", "true")),)
    architecture = (spec.architecture if spec else None) or ""
    if architecture:
        required = (*required, Label(Origin.KUBEVIRT, Expression.equals("kubernetes.io/arch", architecture)))
    if nodes.review(required).count:
        return None
    of = f" of architecture {quote(architecture)}" if architecture else ""
    return allow(reasons.unusable(rows.field_of(rows.CPU_MODEL), f"no node{of} has the CPU model {model}"), warn=True)
