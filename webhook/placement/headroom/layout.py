"""Nodes, and what is on them: what places are counted in (`model`), and what losses are tried in (`losses`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.selectors import Term
from webhook.placement.eligibility import Eligibility
from webhook.placement.headroom.pods import PlacedPod, meant_by, size_of
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import HOSTNAME, Node, bitset_positions
from webhook.placement.pod_rules import PodInfo
from webhook.placement.requirements import Requirements
from webhook.placement.scores import KubernetesVersion
from webhook.placement.simulate import SimulatedPod, Simulation

# What takes room, or will: a pod, or a VM that has none at the moment.
Key: TypeAlias = tuple[str, str, str]
POD: Final = "Pod"
VM: Final = "VirtualMachine"

# In clusters with more nodes than this, no node is scored.
MOST_SCORED: Final = 200
# Of a node, so many places count at most.
_MOST_PLACES: Final = 8
# Nodes that are loaded at a time.
_SLICE: Final = 20
# Rules about pods of all namespaces: any tenant may write some, and each pod of all others is looked up by them.
_MOST_OF_ALL_NAMESPACES: Final = 64
# What is kept of a rule, or of a requirement, is up to 2 KB, far more than of a pod that has none.
_CHANGES_FOR_RULE: Final = 10
# Of what they list, at least that is kept for so many bytes of it, or for each entry that a rule is found by.
_BYTES_A_CHANGE: Final = 32
_CHANGES_FOR_ENTRY: Final = 2


def vm_key(vm: NamespacedName) -> Key:
    """The key of a VM by its namespace and name."""
    return (VM, *vm)


class Nodes:
    """The nodes of a cluster, which stay as they are once they have been loaded.

    Args:
        nodes: as the API server has them.
        version: that of kube-scheduler.

    Attributes:
        names: by position.
        hosts_are_nodes: whether no two nodes have the same hostname.
    """

    def __init__(self, nodes: Iterable[NodeWithoutImages], version: KubernetesVersion) -> None:
        self.views: Final[Mapping[str, NodeWithoutImages]] = {view.meta.name: view for view in nodes if view.meta.name}
        self.version: Final = version
        self.index: Final = NodeIndex()
        self.names: Final[dict[int, str]] = {}
        self.hosts_are_nodes = True

    def load(self) -> Iterator[None]:
        """Index the nodes, in slices."""
        hosts = set()
        for count, name in enumerate(sorted(self.views)):
            node = Node.of(self.views[name])
            self.index.put(node)
            self.names[self.index.position(name) or 0] = name
            host = node.labels.get(HOSTNAME)
            self.hosts_are_nodes = self.hosts_are_nodes and host not in hosts
            if host is not None:
                hosts.add(host)
            if count % _SLICE == 0:
                yield


class PlaceOfPod(NamedTuple):
    """Where a pod is.

    Attributes:
        position: that of its node.
        starts_anew: whether another one is created in its place once it is lost.
    """

    pod: PlacedPod
    position: int
    starts_anew: bool


class SparePlaces(NamedTuple):
    """How many places more than needed a VM has; negative: too few, as far as is counted.

    A VM certainly starts that has none too few: each other pod takes one place at most, wherever it goes and whatever
    comes first.

    Attributes:
        nodes: where each node is one place.
        all: where a node has as many as it has room for.
    """

    nodes: int
    all: int


_NOT_COUNTED: Final = SparePlaces(-1, -1)


class Layout:
    """Nodes, and the pods on them.

    Args:
        nodes: the nodes, loaded; the layout is loaded after it is made.

    Attributes:
        names: of the nodes, by position.
        places: where each pod is.
        changes: how often something was asked about, and what its rules have added; what is kept of those of pods that
            are gone goes with the layout.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.nodes: Final = nodes
        self.index: Final = nodes.index
        self.names: Final = nodes.names
        self.simulation: Final = Simulation(nodes.index, {}, nodes.version)
        self.simulation.rules.most_of_all = _MOST_OF_ALL_NAMESPACES
        self._to_load: Final = deque(nodes.views.items())
        self.places: Final[dict[Key, PlaceOfPod]] = {}
        self.changes = 0
        self._at: Final[dict[int, dict[Key, PlaceOfPod]]] = {}
        # What is on nodes, by namespace: most rules of tenants mean pods of their own.
        self._in_namespace: Final[dict[str, dict[Key, PlaceOfPod]]] = {}
        self._eligibility: Final[dict[Requirements, Eligibility]] = {}
        # The preferred terms by which the simulation has scored nodes: it keeps the scores of each.
        self._preferred: Final[set[tuple[tuple[Term, int], ...]]] = set()

    def load(self) -> Iterator[None]:
        """Have those nodes be there that are not yet, in slices, before anything is on them."""
        while self._to_load:
            self.simulation.add_node(*self._to_load.popleft())
            if len(self._to_load) % _SLICE == 0:
                yield

    def at(self, position: int) -> Mapping[Key, PlaceOfPod]:
        """What is on a node."""
        return self._at.get(position, {})

    def starting(self, position: int) -> list[tuple[Key, PlacedPod]]:
        """What starts anew once a node is lost."""
        return [(key, place.pod) for key, place in self.at(position).items() if place.starts_anew]

    def bind(self, key: Key, place: PlaceOfPod) -> None:
        """Have a pod be on a node; it is on none now."""
        pod = place.pod
        self.simulation.bind(pod.simulated, place.position)
        self.places[key] = place
        self._at.setdefault(place.position, {})[key] = place
        self._in_namespace.setdefault(pod.name[0], {})[key] = place

    def unbind(self, key: Key) -> PlaceOfPod | None:
        """Have a pod be on no node; returns where it was."""
        place = self.places.pop(key, None)
        if place is not None:
            del self._at[place.position][key]
            namespace = place.pod.name[0]
            of_namespace = self._in_namespace[namespace]
            del of_namespace[key]
            if not of_namespace:
                del self._in_namespace[namespace]
            self.simulation.unbind(place.pod.simulated, place.position)
        return place

    def track(self, pod: SimulatedPod) -> None:
        """Count the pods that a pod's rules mean, before it is bound."""
        if fresh := self.simulation.rules.track_late(pod.info, self._bound):
            self.changes += max(_CHANGES_FOR_RULE * fresh, _CHANGES_FOR_ENTRY * meant_by(pod.info))

    def _bound(self, namespaces: frozenset[str] | None) -> Iterator[tuple[PodInfo, int]]:
        """What is on nodes, of some namespaces or of all, each with the position of its node."""
        for namespace in self._in_namespace if namespaces is None else namespaces:
            for place in self._in_namespace.get(namespace, {}).values():
                yield place.pod.simulated.info, place.position

    def eligibility(self, pod: PlacedPod) -> Eligibility:
        """The nodes by what a pod requires of them."""
        found = self._eligibility.get(pod.requirements)
        if found is None:
            self.changes += _CHANGES_FOR_RULE * len(pod.requirements) + size_of(pod.requirements) // _BYTES_A_CHANGE
            found = self._eligibility[pod.requirements] = self.index.review(pod.requirements)
        return found

    def feasible(self, pod: PlacedPod) -> int:
        """The nodes that have room for a pod now, as a bitset."""
        self.track(pod.simulated)
        self.changes += 1
        return self.simulation.filter(pod.simulated, self.eligibility(pod)).feasible

    def choices(self, pod: PlacedPod, eligibility: Eligibility | None = None) -> tuple[int, int]:
        """The nodes of which kube-scheduler chooses one for a pod now, as a bitset, and the one that is taken here.

        No node: none has room for it.
        """
        simulation, eligibility = self.simulation, eligibility or self.eligibility(pod)
        if len(self.names) <= MOST_SCORED:
            preferred = pod.simulated.preferred
            if preferred not in self._preferred:
                self._preferred.add(preferred)
                self.changes += size_of(preferred) // _BYTES_A_CHANGE
            found = simulation.schedule(pod.simulated, eligibility)
            return (found.ties, found.position) if found else (0, 0)
        nodes = simulation.filter(pod.simulated, eligibility).feasible
        position = simulation.most_free(nodes) if nodes else 0
        return (1 << position if nodes else 0), position

    def has_rules(self, pod: PlacedPod) -> bool:
        """Whether rules between pods, its own or those of others, may keep a pod away from nodes with room."""
        info, rules = pod.simulated.info, self.simulation.rules
        return bool(info.rules) or (rules.has_rules and rules.keeps_away(info))

    # -- places, counted for one node ----------------------------------------------------------------------------------

    def spare_places(self, position: int, starting: list[tuple[Key, PlacedPod]]) -> Iterator[SparePlaces]:
        """The places of the VMs among what starts anew once a node is lost, one of each kind, in slices."""
        if any(pod.simulated.info.rules.affinity or pod.simulated.info.rules.spread for _, pod in starting):
            yield _NOT_COUNTED
            return
        apart = [near for _, pod in starting for near in pod.simulated.info.rules.anti_affinity]
        if apart and not (self.nodes.hosts_are_nodes and all(near.key == HOSTNAME for near in apart)):
            yield _NOT_COUNTED
            return
        # With rules about hosts each pod may keep another from one node, however much room that has.
        most = 1 if apart else _MOST_PLACES
        largest: dict[str, int] = {}
        for _, pod in starting:
            for name, amount in pod.simulated.requests.items():
                largest[name] = max(amount, largest.get(name, 0))
        seen = set()
        for _, pod in starting:
            alike = tuple(sorted(pod.simulated.requests.items())), pod.requirements, pod.simulated.info.rules
            named = (pod.name[0], *sorted(pod.simulated.info.labels.items())) if self.has_rules(pod) else ()
            if not pod.vm or (alike, named) in seen:
                continue
            seen.add((alike, named))
            nodes = self.simulation.filter(pod.simulated, self.eligibility(pod)).feasible & ~(1 << position)
            spare = places = nodes.bit_count() - len(starting)
            if spare < 0 and most > 1:
                places += sum(self._places(at, pod.simulated.requests, largest) - 1 for at in bitset_positions(nodes))
            yield SparePlaces(spare, places)

    def _places(self, position: int, own: Mapping[str, int], largest: Mapping[str, int]) -> int:
        """How many other pods a node can take, each as large as any, until a pod has no room there; one at least."""
        free = self.simulation.resources(position).free
        more = _MOST_PLACES
        for name, amount in largest.items():
            if amount > 0:
                more = min(more, (free.get(name, 0) - own.get(name, 0)) // amount)
        return 1 + max(0, more)
