"""Where a VM can migrate to and why not elsewhere: the explanation, its JSON shape, and the matrix that the page shows.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.admission.step_budget import spend
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, ListKey, ObjectKey
from webhook.k8s.types.meta import Unstructured, View
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.placement.eligibility import (
    Eligibility,
    Failure,
    Group,
    eligibility_notes,
    source_notes,
    unmet_requirements,
)
from webhook.placement.index import SuggestedSelector
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS, Migration, Vmi
from webhook.placement.migrations import conflict, describe_evacuation, describe_hotplug, in_flight
from webhook.placement.nodes import Node, reserved_keys
from webhook.placement.quota import QUOTAS, QuotaReview
from webhook.placement.requirements import Label, Origin, contradictions, kept_by_kubevirt
from webhook.placement.target_pods import foreign_affinity, foreign_pod_rules
from webhook.policies.common import migration_targets, volumes
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.openings import change_of
from webhook.policies.common.required_facts import read, read_configuration
from webhook.text import abbreviate, pluralize

SCHEMA: Final = "kubevirt-webhook.github.io/explain-migration/v1alpha1"


class Nodes(View, frozen=True):
    """So many nodes, by name, sorted."""

    count: int
    names: list[str]

    @classmethod
    def of(cls, eligibility: Eligibility, part: Failure | Group | None = None) -> Nodes:
        """The eligible nodes, or those that fail something."""
        return cls((part or eligibility).count, eligibility.names(part))


class Why(View, frozen=True):
    """A requirement in words.

    Attributes:
        origin: where it comes from: ``added``, ``vm``, ``affinity``, ``cluster``, ``kubevirt``, ``schedulable``,
            ``host-model``, ``vendor``, ``taints``, ``cordon``, ``source node``, ``kvm``, ``resources``,
            ``runtime class``, ``namespace``, ``reservation``, ``spread``, ``pod affinity`` or ``volumes``.
        text: the requirement with its origin, a clause.
    """

    origin: str
    text: str


class ContradictionReport(View, frozen=True):
    """Requirements that no node can have at once.

    Attributes:
        text: all of them in a clause.
        requirements: each; what the migration adds comes first.
        dropped: KubeVirt itself drops what is added, without a word.
    """

    text: str
    requirements: tuple[Why, ...]
    dropped: bool


class WithoutWebhook(View, frozen=True):
    """What KubeVirt by itself would do with the same migration, without this webhook.

    Attributes:
        drops: the labels that the migration adds and KubeVirt's target pod would not require.
        nodes: the nodes that the VM could migrate to.
        text: all of it in words, to follow "KubeVirt by itself".
    """

    drops: tuple[str, ...]
    nodes: Nodes
    text: str


class ReasonReport(View, frozen=True):
    """A class of reasons; a node can have several.

    Attributes:
        origin: where the requirement comes from, for programs.
        text: what these nodes are, to follow their number.
        alone: how many of them have no other reason.
    """

    origin: str
    text: str
    nodes: Nodes
    alone: int


class OpeningReport(View, frozen=True):
    """A single change that would make more nodes eligible.

    Attributes:
        change: what to do, an imperative; it would make the nodes eligible.
    """

    change: str
    nodes: Nodes


class NodeGroupReport(View, frozen=True):
    """The nodes that have exactly these reasons against them; every node that is not eligible is in one group."""

    fails: tuple[str, ...]
    nodes: Nodes


class OneNode(View, frozen=True):
    """The node of the request, with all reasons against it; none: it is eligible."""

    name: str
    eligible: bool
    reasons: tuple[Why, ...]


class MigrationExplanation(View, frozen=True):
    """The whole explanation.

    Attributes:
        running_on: the node that the VM runs on; empty: none yet.
        obstacles: why the migration fails whatever nodes there are, clauses.
        reasons: the largest class first.
        openings: the most helpful first, those last that give up what is added.
        groups: the largest first.
        gaps: what could not be taken into account, clauses: more nodes may look eligible than are.
        notes: what may keep the VM from an eligible node, clauses.
        node: the node of the request; None: the request names none.
        evacuation: that KubeVirt still evacuates the VM and how to end that, a sentence; empty: it does not.
        hotplug: that a change of the VM waits for a migration, and whether KubeVirt creates it, a clause; empty: none
            waits.
        undecided: that KubeVirt has not written whether it can migrate the VM, a clause; empty: it has.
    """

    schema: str
    namespace: str
    name: str
    running_on: str
    added_node_selector: dict[str, str]
    summary: str
    total: int
    eligible: Nodes
    obstacles: tuple[str, ...]
    contradictions: tuple[ContradictionReport, ...]
    kubevirt: WithoutWebhook
    reasons: tuple[ReasonReport, ...]
    openings: tuple[OpeningReport, ...]
    groups: tuple[NodeGroupReport, ...]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    node: OneNode | None
    evacuation: str = ""
    hotplug: str = ""
    undecided: str = ""

    @property
    def favorable(self) -> bool:
        """Whether the migration can succeed; for a request about one node, whether the VM can migrate there."""
        possible = self.node.eligible if self.node else bool(self.eligible.count)
        return possible and not self.obstacles


# Without a condition, or with Unknown, KubeVirt tries.
_MIGRATABLE: Final = "LiveMigratable"


class NotThere(InputError):  # noqa: N818 - the object does not exist
    """There is no such VM, VMI or node, or the VM does not run, so that there is nothing to explain."""


class FactPermissions(msgspec.Struct, frozen=True):
    """With whose permissions the facts of an explanation are read.

    Attributes:
        own: the requester's own. The VM itself is read then, which distinguishes a stopped VM from a missing one, and
            the namespace's quotas are, which a server would show to users who may not read them.
        without_volumes: why the VM's claims and volumes must not be read, as a clause; empty: they are read.
    """

    own: bool = True
    without_volumes: str = ""


# The requester's own permissions: a command, with its kubeconfig.
REQUESTER: Final = FactPermissions()
# The server's permissions. Where the requester is known, theirs have been checked for the VMI, nodes and volumes.
SERVER: Final = FactPermissions(own=False)
# Until those of the requester have been checked.
UNCHECKED: Final = FactPermissions(own=False, without_volumes="the requester's permissions have not been checked")


class Question(NamedTuple):
    """What would become of a migration of a VM now.

    Attributes:
        added: the selector that the migration adds, whose syntax has been checked.
        node: the node that is explained in full; empty: none.
        reader: with whose permissions facts are read.
    """

    namespace: str
    name: str
    added: Mapping[str, str]
    node: str = ""
    reader: FactPermissions = REQUESTER


class _Subject(msgspec.Struct, frozen=True):
    """What an explanation is about: a VMI with its migration, and the nodes that are eligible.

    Attributes:
        target: what the target pod requires of nodes.
        eligibility: which nodes meet the target's requirements.
        strays: how many more nodes kube-scheduler may choose, which do not reach hotplugged volumes.
        install: KubeVirt's configuration; None where the cluster has no KubeVirt.
        quota: what the namespace's quotas say to the target pod.
        migrations: the VM's, as far as they are read.
        now: Unix time in seconds.
    """

    question: Question
    target: Target
    eligibility: Eligibility
    strays: int
    install: ClusterConfig | None
    quota: QuotaReview
    migrations: tuple[Migration, ...]
    now: float

    @property
    def configuration(self) -> ClusterConfig:
        return self.install or DEFAULTS

    @property
    def source(self) -> Node | None:
        """The node that the VM runs on; None: it runs nowhere, or the node is gone."""
        return self.target.nodes.get(self.target.vmi.node_name) if self.target.vmi.node_name else None


async def explain(question: Question, facts: Facts) -> MigrationExplanation:
    """The answer to a question.

    Raises:
        NotThere: there is nothing to explain.
        Unreadable: something that it depends on cannot be read.
    """
    return _explain(await _subject(question, facts))


def _explain(subject: _Subject) -> MigrationExplanation:
    question, target, eligibility, vmi = subject.question, subject.target, subject.eligibility, subject.target.vmi
    conflicts = tuple(
        ContradictionReport(str(each), tuple(Why(one.origin, one.clause) for one in each.requirements), each.is_dropped)
        for each in contradictions(target.requirements)
    )
    obstacles = tuple(_obstacles(subject))
    return MigrationExplanation(
        schema=SCHEMA,
        namespace=question.namespace,
        name=question.name,
        running_on=vmi.node_name,
        added_node_selector=dict(question.added),
        summary=_summary(eligibility, conflicts),
        total=eligibility.total,
        eligible=Nodes.of(eligibility),
        obstacles=obstacles,
        contradictions=conflicts,
        kubevirt=_evaluate_without_webhook(target, eligibility, obstacles),
        reasons=reasons_of(eligibility),
        openings=_openings(eligibility, subject.install.owner if subject.install else None),
        groups=tuple(
            NodeGroupReport(tuple(failure.lacking for failure in group.failures), Nodes.of(eligibility, group))
            for group in eligibility.groups()
            if group.failures
        ),
        gaps=(*target.gaps, *_foreign_gaps(target, eligibility), *subject.quota.gaps),
        notes=tuple(_notes(subject)),
        node=_explain_node(question.node, target) if question.node else None,
        evacuation=describe_evacuation(vmi, subject.configuration, subject.source),
        hotplug=describe_hotplug(vmi, subject.configuration),
        undecided=_undecided(vmi),
    )


def _foreign_gaps(target: Target, eligibility: Eligibility) -> Iterator[str]:
    """What the present pod requires that others than the VM and KubeVirt put there.

    It rules no node out, since what put it into the present pod need not put it into the target pod.
    """
    if target.pod is None:
        return
    if foreign := foreign_affinity(target.pod, target.vmi, target.added_before, target.additions.present):
        count = (target.nodes.review((foreign,)).bitset & eligibility.bitset).bit_count()
        terms = " or ".join(map(str, foreign.terms))
        meet = f"{count} of {pluralize(eligibility.count, 'eligible node')} {'meets' if count == 1 else 'meet'} it"
        yield (
            f"the current pod's node affinity requires {terms}, which neither the VM nor KubeVirt requires: if another"
            f" admission webhook adds it to the target pod, too, {meet}"
        )
    if rules := foreign_pod_rules(target.pod, target.vmi, target.additions.present.group):
        yield f"the current pod has {rules}, which the VM has not: another admission webhook may add them to any pod"


def _undecided(vmi: Vmi) -> str:
    """That KubeVirt has not written whether a VM that runs can be migrated, a clause; empty: it has.

    Its webhooks differ then: that for migrations denies only where the condition is False, that for evictions takes
    what is not True for a VM that cannot.
    """
    condition = vmi.condition(_MIGRATABLE)
    if not vmi.node_name or (condition and condition.status in ("True", "False")):
        return ""
    return (
        "KubeVirt has not written whether it can migrate the VM (condition LiveMigratable): it would try where a user"
        " asks, and an eviction counts it as one that cannot be migrated"
    )


async def _subject(question: Question, facts: Facts) -> _Subject:
    vmi, namespace = await _running_vmi(question, facts), question.namespace
    own = _quota_keys(vmi, namespace) if question.reader.own else ()
    await facts.prefetch(*migration_targets.keys_by_vmi(vmi, namespace), *own)
    claims = () if question.reader.without_volumes else volumes.claim_keys(vmi, namespace)
    limits = await migration_targets.keys_by_quotas(namespace, facts) if question.reader.own else ()
    await facts.prefetch(*await migration_targets.keys_by_pod(vmi, namespace, facts), *claims, *limits)
    of_volumes = await _volumes(vmi, question, facts)
    install, migrations = await read_configuration(facts), await _migrations(vmi, question, facts)
    migration = Migration.adding(dict(question.added), receives=vmi.waits_for_source)
    # The nodes come last: they change while something is read.
    target = await migration_targets.of(vmi, namespace, facts, migration)
    scheduled = msgspec.structs.replace(
        target, requirements=(*target.requirements, *of_volumes.own), gaps=(*target.gaps, *of_volumes.gaps)
    )
    target = msgspec.structs.replace(scheduled, requirements=(*scheduled.requirements, *of_volumes.attached))
    eligibility = target.review()
    strays = scheduled.review().count - eligibility.count if of_volumes.attached else 0
    quota = QuotaReview(gaps=("ResourceQuotas, which only the command `kubevirt-webhook explain migration` reads",))
    if question.reader.own:
        quota = await migration_targets.review_quota(target, namespace, facts)
    return _Subject(question, target, eligibility, strays, install, quota, migrations, facts.now)


def _notes(subject: _Subject) -> Iterator[str]:
    """What else the requester should know, clauses.

    Of hotplugged volumes: pkg/virt-controller/watch/migration, ``createAttachmentPod``.
    """
    vmi, strays = subject.target.vmi, subject.strays
    if keys := reserved_keys(subject.question.added):
        reserved, them = ("is reserved", "it") if len(keys) == 1 else ("are reserved", "them")
        yield f"{', '.join(keys)} {reserved} for KubeVirt; the migration policy denies {them} by default"
    for each in vmi.cpu.decided_by_kubelet:
        yield f"the VM has {each}, so the kubelet decides by NUMA node whether it fits"
    if eligible := [node for name in subject.eligibility.names() if (node := subject.target.nodes.get(name))]:
        yield from eligibility_notes(vmi, eligible, now=subject.now)
    if subject.source:
        yield from source_notes(subject.target.requirements, subject.source)
    if attached := sorted(filter(None, vmi.attached_volumes)):
        yield (
            f"on its target node, the VM needs a slot for a second pod, which attaches its hotplugged volumes"
            f" ({', '.join(attached)})"
        )
    if strays:
        yield (
            f"kube-scheduler does not regard hotplugged volumes: it may choose {pluralize(strays, 'more node')} that"
            f" cannot attach them, and the migration then waits without end"
        )


async def _running_vmi(question: Question, facts: Facts) -> Vmi:
    namespace, name = question.namespace, question.name
    vmi = await read(facts, ObjectKey(PLACED_VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")
    if vmi and not vmi.has_ended:
        return vmi
    vm: Unstructured | Unavailable | None = Unavailable("not looked at")
    if question.reader.own:
        vm = await facts.get(ObjectKey(UNSTRUCTURED_VMS, namespace, name))
    if isinstance(vm, Unstructured):
        state = (vm.status or {}).get("printableStatus")
        says = f" ({state})" if state else ""
        raise NotThere(f"the VM {namespace}/{name} is not running{says}, so there is nothing to migrate")
    if vmi:
        raise NotThere(f"the VMI {namespace}/{name} has ended, so there is nothing to migrate")
    if vm is None:
        raise NotThere(f"VirtualMachine {namespace}/{name} does not exist", fix="check the name and the namespace")
    raise NotThere(f"VirtualMachineInstance {namespace}/{name} does not exist: the VM does not run")


def _summary(eligibility: Eligibility, conflicts: tuple[ContradictionReport, ...]) -> str:
    if eligibility.count:
        verb = "is" if eligibility.count == 1 else "are"
        total = pluralize(eligibility.total, "node")
        return f"{eligibility.count} of {total} {verb} eligible: {abbreviate(eligibility.names())}"
    if not eligibility.total:
        return "no node is eligible: the cluster has no nodes"
    if conflicts:
        return f"no node is eligible: {conflicts[0].text}"
    most = max(eligibility.failures, key=lambda failure: failure.count)
    rest = ", and others" if most.count < eligibility.total else ""
    return f"no node is eligible: {most.count} of {eligibility.total} {most.lacking}{rest}"


def _obstacles(subject: _Subject) -> Iterator[str]:
    """What stands in the migration's way: KubeVirt cannot make it, or the API server denies a pod, now or already."""
    vmi = subject.target.vmi
    if why := migration_targets.name_problem(subject.question.name):
        yield why
    if why := migration_targets.state_problem(vmi, subject.configuration.release):
        yield why
    if why := migration_targets.cpu_problem(vmi, subject.target.pod, subject.source):
        yield why
    migratable = vmi.condition(_MIGRATABLE)
    if migratable and migratable.status == "False":
        why = ": ".join(part for part in (migratable.reason, migratable.message) if part)
        yield "KubeVirt cannot migrate this VM" + (f": {why}" if why else "")
    if not vmi.node_name and not vmi.waits_for_source:
        yield "the VM is on no node yet; KubeVirt migrates it once it runs"
    if subject.quota.problem:
        yield f"the API server would deny its target pod: {subject.quota.problem}"
    yield from _in_flight(subject)
    yield from _without_sender(subject)


def _in_flight(subject: _Subject) -> Iterator[str]:
    """Why virt-api denies a migration of the VM now: another one has not ended (migration-create-admitter.go)."""
    vmi = subject.target.vmi
    migration = in_flight(vmi, subject.migrations)
    # One that is to be received waits for just that migration.
    if migration is None or vmi.waits_for_source:
        return
    if migration.is_denied_by_quota:
        yield (
            f"its migration {migration.meta.name or ''} waits, because a ResourceQuota denied the target pod;"
            " KubeVirt begins no other meanwhile"
        )
    else:
        name = migration.meta.name or ""
        yield f"its migration {name} has not ended, so virt-api denies another one: {conflict(migration)}"


def _without_sender(subject: _Subject) -> Iterator[str]:
    """Why no virt-handler sends the guest: the one of the source node is gone."""
    name = subject.target.vmi.node_name
    # Without any node it is not known which ones there are.
    if not name or not subject.eligibility.total:
        return
    node = subject.target.nodes.get(name)
    if node is None:
        yield f"its node {name} does not exist, so no virt-handler sends the guest"
    elif gone := node.heartbeat.problem(subject.now):
        yield f"virt-handler of {name}, which has to send the guest, {gone}: the migration waits without end"


def _quota_keys(vmi: Vmi, namespace: str) -> list[ListKey[Any]]:
    """The namespace's quotas, and the VM's migrations, which may wait for one."""
    migrations = _migrations_key(vmi, namespace)
    return [ListKey(QUOTAS, namespace), *([migrations] if migrations else [])]


def _migrations_key(vmi: Vmi, namespace: str) -> ListKey[Migration] | None:
    """The VM's migrations; None where KubeVirt can create none."""
    name = vmi.meta.name or ""
    if migration_targets.name_problem(name):
        return None
    return ListKey(MIGRATIONS, namespace, f"{names.VMI_NAME_LABEL}={name}")


async def _migrations(vmi: Vmi, question: Question, facts: Facts) -> tuple[Migration, ...]:
    """The VM's migrations; none where they are not to be read, or cannot be."""
    key = _migrations_key(vmi, question.namespace) if question.reader.own else None
    if key is None:
        return ()
    found = await facts.get(key)
    return found if isinstance(found, tuple) else ()


def _evaluate_without_webhook(target: Target, eligibility: Eligibility, obstacles: tuple[str, ...]) -> WithoutWebhook:
    """What KubeVirt does by itself; an obstacle keeps it, too, from moving the VM."""
    kept = kept_by_kubevirt(target.requirements)
    without_webhook = target.nodes.review(kept)
    remaining = {each for each in kept if isinstance(each, Label)}
    dropped = [each for each in target.requirements if isinstance(each, Label) and each not in remaining]
    drops = tuple(str(each.expression) for each in dropped if each.origin == Origin.ADDED)
    vendor_labels = [str(each.expression) for each in dropped if each.origin == Origin.VENDOR]
    count, listed = without_webhook.count, abbreviate(without_webhook.names())
    does = [f"drop {', '.join(drops)} silently"] if drops else []
    if vendor_labels:
        does.append(f"no longer require {', '.join(vendor_labels)}")
    if obstacles:
        does.append("not carry out the migration either")
    elif not count:
        does.append("create a target pod that stays Pending, and fail after 5 minutes")
    elif does or count != eligibility.count:
        does.append(f"migrate to {listed if count == 1 else f'one of {count} nodes: {listed}'}")
    else:
        does.append(f"do the same: go to {'that node' if eligibility.count == 1 else 'one of these nodes'}")
    return WithoutWebhook(drops, Nodes.of(without_webhook), f"would {', and '.join(does)}")


def reasons_of(eligibility: Eligibility) -> tuple[ReasonReport, ...]:
    """Why nodes are not eligible, the largest class first."""
    counts = {opening.failures[0]: opening.count for opening in eligibility.openings()}
    return tuple(
        ReasonReport(each.requirement.origin, each.lacking, Nodes.of(eligibility, each), counts.get(each, 0))
        for each in sorted(eligibility.failures, key=lambda failure: -failure.count)
    )


def _openings(eligibility: Eligibility, owner: HyperConverged | None) -> tuple[OpeningReport, ...]:
    # To give up what is being requested is the last advice.
    ranked = sorted(eligibility.openings(), key=lambda each: each.failures[0].requirement.origin == Origin.ADDED)
    return tuple(
        OpeningReport(change, Nodes.of(eligibility, opening))
        for opening in ranked
        if (change := change_of(opening.failures[0], owner))
    )


def _explain_node(name: str, target: Target) -> OneNode:
    node = target.nodes.get(name)
    if node is None:
        raise NotThere(f"node {name} does not exist", fix="kubectl get nodes lists them")
    against = unmet_requirements(target.requirements, node)
    reasons = tuple(Why(reason.requirement.origin, str(reason)) for reason in against)
    return OneNode(name, not against, reasons)


async def _volumes(vmi: Vmi, question: Question, facts: Facts) -> volumes.VolumeRequirements:
    """What the VM's volumes require of nodes.

    They are read even if no node is eligible: advice that opens a node must not send the VM away from its disks.
    """
    if why := question.reader.without_volumes:
        gap = f"which nodes reach the VM's volumes was not looked up: {why}"
        return volumes.VolumeRequirements(gaps=(gap,) if volumes.has_claims(vmi) else ())
    return await volumes.review_volumes_of_running(vmi, question.namespace, facts)


# Where every node has a taint of its own there are thousands.
MAX_COLUMNS: Final = 12
_MAX_MET: Final = 40


class MatrixColumn(msgspec.Struct, frozen=True):
    """One requirement that some nodes do not meet.

    Attributes:
        origin: where it comes from, as in `Why`.
        text: the requirement as a clause; of a taint, which one.
        count: the nodes that do not meet it.
    """

    origin: str
    text: str
    count: int


class MatrixRow(msgspec.Struct, frozen=True):
    """One node.

    Attributes:
        unmet: how many requirements it does not meet, those without a column too.
        cells: by column, what the node has instead; empty: it meets the requirement.
    """

    node: str
    unmet: int
    cells: tuple[str, ...]


class PlacementMatrix(msgspec.Struct, frozen=True):
    """A part of the matrix, and what belongs to all of it.

    Attributes:
        columns: the requirements that most nodes do not meet first.
        more_columns: further ones that have no column.
        met: the requirements that every node meets, as clauses.
        first: the place of the first row among all nodes, from 0.
        rows: the eligible nodes first, then those that lack least.
    """

    explanation: MigrationExplanation
    columns: tuple[MatrixColumn, ...]
    more_columns: int
    met: tuple[str, ...]
    first: int
    rows: tuple[MatrixRow, ...]
    selectors: tuple[SuggestedSelector, ...]


async def matrix(question: Question, facts: Facts, *, first: int = 0, count: int = 50) -> PlacementMatrix:
    """The matrix of a VM's migration, ``count`` rows from the place ``first`` on; all else is as for `explain`."""
    subject = await _subject(question, facts)
    failures = sorted(subject.eligibility.failures, key=lambda failure: -failure.count)
    shown = tuple(failures[:MAX_COLUMNS])
    unmet = {failure.requirement for failure in failures}
    requirements = subject.target.requirements
    met = [each.clause for each in requirements if each not in unmet]
    # The labels to try are those instead of what is added now.
    others = tuple(each for each in requirements if each.origin != Origin.ADDED)
    without_added = subject.eligibility if len(others) == len(requirements) else subject.target.nodes.review(others)
    return PlacementMatrix(
        explanation=_explain(subject),
        columns=tuple(
            MatrixColumn(
                failure.requirement.origin,
                f"no taint {failure.taint}" if failure.taint else failure.requirement.clause,
                failure.count,
            )
            for failure in shown
        ),
        more_columns=len(failures) - len(shown),
        met=tuple(dict.fromkeys(met))[:_MAX_MET],
        first=first,
        rows=_rows(subject, shown, first, count),
        selectors=subject.target.nodes.suggest_selectors(without_added.bitset),
    )


def _rows(subject: _Subject, columns: tuple[Failure, ...], first: int, count: int) -> tuple[MatrixRow, ...]:
    """The rows of a part; of groups of nodes outside of it, only their sizes are looked at."""
    rows: list[MatrixRow] = []
    passed = 0
    groups = sorted(subject.eligibility.groups(), key=lambda group: len(group.failures))
    spend(len(groups), "different ways in which nodes do not fit")
    for group in groups:
        begin, passed = passed, passed + group.count
        if passed <= first:
            continue
        if begin >= first + count:
            break
        names = subject.eligibility.names(group)[max(0, first - begin) : first + count - begin]
        spend(len(names) * (1 + len(columns)), "nodes")
        failing = {id(failure) for failure in group.failures}
        for name in names:
            node = subject.target.nodes.get(name)
            cells = (_has(failure, node) if id(failure) in failing else "" for failure in columns)
            rows.append(MatrixRow(name, len(group.failures), tuple(cells)))
    return tuple(rows)


def _has(failure: Failure, node: Node | None) -> str:
    if failure.taint:
        return "has this taint"
    reasons = failure.requirement.reasons(node) if node else ()
    return reasons[0].has if reasons else failure.lacking
