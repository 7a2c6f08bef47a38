"""The VMs that an eviction would migrate: what their target pods require, request, and share with other pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.facts import Facts
from webhook.forecast.drain.room import PODS, Amounts
from webhook.forecast.drain.snapshot import Place, World, place_of
from webhook.forecast.drain.terms import PodConstraints, Wearer, rules_of
from webhook.forecast.drain.views import ConstrainedPod, SpreadTerm
from webhook.placement import requirement
from webhook.placement.allocation import Allocatable, Reachable
from webhook.placement.expression import IN
from webhook.placement.requirement import Label, OneOf, Requirement, Requirements, Uncordoned, Untainted
from webhook.placement.resources import MEMORY
from webhook.placement.verdict import Verdict
from webhook.placement.vmis import PlacedVmiSpec, Vmi
from webhook.policies.common import migration_targets


class Mover(msgspec.Struct, frozen=True):
    """A VM that needs another node.

    Attributes:
        requirements: what the node must have.
        requests: what the target pod takes of it.
        pod: the target pod, as other pods' rules see it.
        source: the pod that it runs in now; None: it is not known.
        gaps: what could not be taken into account, clauses.
    """

    vmi: Vmi
    requirements: Requirements
    requests: Amounts
    pod: Wearer
    source: Wearer | None = None
    gaps: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        """The VM's namespace and name."""
        return place_of(self.vmi)

    @property
    def memory(self) -> int:
        """What the target pod requests, in bytes; huge pages where its guest has them."""
        pages = sum(amount for name, amount in self.requests.items() if name.startswith("hugepages-"))
        return self.requests.get(MEMORY, 0) + pages


def mover_of(vmi: Vmi, world: World, source: Wearer | None) -> Mover:
    """What the next target pod of a VM requires.

    Args:
        vmi: the VMI, on the node that it is to leave.
        world: the cluster.
        source: the pod that it runs in now; None: it is not known.
    """
    namespace = vmi.meta.namespace or ""
    target = migration_targets.of(vmi, namespace, Facts(peek=world.peek))
    requests = {each.resource: each.amount for each in target.requirements if isinstance(each, Allocatable)}
    requirements = (*target.requirements, *_reachable(vmi, namespace, world))
    return Mover(vmi, requirements, {PODS: 1, **requests}, target_pod(vmi, world), source, target.gaps)


def target_pod(vmi: Vmi, world: World) -> Wearer:
    """The target pod of a VM, by its labels and rules."""
    namespace, spec, pod = vmi.meta.namespace or "", vmi.spec or PlacedVmiSpec(), world.pod_of(vmi)
    labels = {**((pod.meta.labels if pod else None) or {}), **(vmi.meta.labels or {})}
    # A webhook may have added constraints to the pod of a VM that has none.
    spread = spec.topology_spread_constraints or (pod.spec.topology_spread_constraints if pod and pod.spec else None)
    return Wearer(namespace, labels, rules_of(spec.affinity, _terms(spread), namespace, labels, world.labels))


def wearer_of(pod: ConstrainedPod, namespaces: Mapping[str, Mapping[str, str]]) -> Wearer:
    """A pod that runs. Of its rules, only anti-affinity still counts."""
    namespace, labels = pod.meta.namespace or "", pod.meta.labels or {}
    affinity = pod.spec.affinity if pod.spec else None
    if affinity is None or affinity.pod_anti_affinity is None:
        return Wearer(namespace, labels)
    own = rules_of(affinity, (), namespace, labels, namespaces)
    return Wearer(namespace, labels, PodConstraints(anti_affinity=own.anti_affinity))


def scopes(verdict: Verdict) -> tuple[int, int]:
    """The nodes that a VM's selectors and affinity allow, and those whose taints it tolerates, as `bits`."""
    matching = tolerated = 0
    for failure in verdict.failures:
        if isinstance(failure.requirement, Label | OneOf) and not isinstance(failure.requirement, Reachable):
            matching |= failure.nodes
        elif isinstance(failure.requirement, Untainted | Uncordoned):
            tolerated |= failure.nodes
    return ~matching, ~tolerated


def after_migration(mover: Mover, node: str, world: World) -> tuple[Vmi, ConstrainedPod | None]:
    """The VM and its pod as they are after a migration."""
    status = msgspec.structs.replace(mover.vmi.status, node_name=node) if mover.vmi.status else None
    vmi = msgspec.structs.replace(mover.vmi, status=status)
    pod = world.pod_of(mover.vmi)
    if pod is None or pod.spec is None:
        return vmi, pod
    # KubeVirt keeps the labels of the first host's CPU from the selector of one target pod to the next.
    required = dict(_required_label(each) for each in mover.requirements if _is_selector(each))
    spec = msgspec.structs.replace(pod.spec, node_name=node, node_selector={**pod.node_selector, **required})
    return vmi, msgspec.structs.replace(pod, spec=spec)


def _is_selector(required: Requirement) -> bool:
    return isinstance(required, Label) and required.expression.operator == IN


def _required_label(required: Requirement) -> tuple[str, str]:
    assert isinstance(required, Label)
    return required.expression.key, required.expression.values[0]


def _reachable(vmi: Vmi, namespace: str, world: World) -> tuple[Reachable, ...]:
    """Where the VM's volumes can be used; hotplugged ones follow the VM, whether the node reaches them or not."""
    found = []
    for each in (vmi.spec.volumes if vmi.spec else None) or ():
        claim = world.claims.get((namespace, each.claim)) if each and not each.is_hotplugged else None
        volume = world.volumes.get(claim.volume) if claim else None
        if each and volume and volume.terms:
            found.append(Reachable(requirement.VOLUMES, volume.terms, each.name or ""))
    return tuple(found)


def _terms(written: Any) -> list[SpreadTerm | None]:
    try:
        return msgspec.convert(written or [], list[SpreadTerm | None], from_attributes=True)
    except msgspec.ValidationError:
        return []
