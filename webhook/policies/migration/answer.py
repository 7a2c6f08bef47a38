"""The shape of an explanation: what `explain migration -o json` prints and ``/v1/explain/migration`` answers.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from typing import Final

from webhook.k8s.views import View

SCHEMA: Final = "kubevirt-webhook.github.io/explain-migration/v1alpha1"


class Nodes(View, frozen=True):
    """So many nodes, by name, sorted."""

    count: int
    names: list[str]


class Why(View, frozen=True):
    """A requirement in words.

    Attributes:
        origin: where it comes from: ``added``, ``vm``, ``affinity``, ``cluster``, ``kubevirt``, ``schedulable``,
            ``host-model``, ``vendor``, ``taints``, ``cordon``, ``source node``, ``kvm``, ``resources``,
            ``runtime class``, ``namespace`` or ``volumes``.
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


class Alone(View, frozen=True):
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
        nodes: those.
        alone: how many of them have no other reason.
    """

    origin: str
    text: str
    nodes: Nodes
    alone: int


class OpeningReport(View, frozen=True):
    """A single change that would make more nodes eligible.

    Attributes:
        change: what to do, an imperative.
        nodes: those that it would make eligible.
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
        schema: `SCHEMA`.
        running_on: the node that the VM runs on; empty: none yet.
        added_node_selector: what the migration would add.
        summary: the answer in a line.
        total: how many nodes the cluster has.
        obstacles: why the migration fails whatever nodes there are, clauses.
        reasons: the largest class first.
        openings: the most helpful first, those last that give up what is added.
        groups: the largest first.
        gaps: what could not be taken into account, clauses: more nodes may look eligible than are.
        notes: what may keep the VM from an eligible node, clauses.
        node: the node of the request; None: the request names none.
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
    kubevirt: Alone
    reasons: tuple[ReasonReport, ...]
    openings: tuple[OpeningReport, ...]
    groups: tuple[NodeGroupReport, ...]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    node: OneNode | None

    @property
    def favourable(self) -> bool:
        """Whether the migration can succeed; for a request about one node, whether the VM can migrate there."""
        possible = self.node.eligible if self.node else bool(self.eligible.count)
        return possible and not self.obstacles
