"""Why no node can take a VM now: what keeps it from each, and what would help.

It is looked at once the verdict is known, in one pass over what keeps nodes out. What several nodes have in common is
one set of nodes, so that this costs little in large clusters too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from webhook.errors import quote
from webhook.k8s.types.selectors import IN, NAME_FIELD, Expression
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.headroom.layout import Layout
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import HOSTNAME, POD_SLOTS, bitset_positions, bitset_union, format_amount
from webhook.placement.pod_rules import POD_AFFINITY, TOPOLOGY_SPREAD, AffinityTerm
from webhook.placement.requirements import (
    Allocatable,
    Label,
    OneOf,
    Origin,
    Requirement,
    Requirements,
    Uncordoned,
    Untainted,
    domain_word,
)
from webhook.placement.simulate import FilterResult

# Of what keeps nodes out, so much is named, and so much is offered to be changed: every node may have its own taint.
_MOST_NAMED: Final = 5
_MOST_OFFERED: Final = 3
_MOST_TAINTS: Final = 10
# Of so many nodes at most it is looked whether they are in one place.
_FEW: Final = 200
_ARCHITECTURE: Final = "kubernetes.io/arch"
# KubeVirt's labels that no change of the VM's rules takes away.
_NOT_CHOSEN: Final = (SCHEDULABLE, _ARCHITECTURE)


class Fix(msgspec.Struct, frozen=True):
    """What would help, an imperative.

    Attributes:
        named: with the nodes, and with amounts.
        plain: the same without, for those who may not know them.
    """

    named: str = ""
    plain: str = ""


class Cause(msgspec.Struct, frozen=True):
    """Why no node can take a VM, a clause; empty: none has room, and the VM may run on some.

    Attributes:
        named: with numbers of nodes, and with their taints.
        plain: the same without, for those who may not know them.
    """

    named: str = ""
    plain: str = ""


def _for_all(text: str) -> Fix:
    return Fix(text, text)


MORE_NODES: Final = _for_all("let the VM run on more nodes")
_NO_FIX: Final = _for_all("change more than one of these")
_LEAVE: Final = _for_all("take the VM out of the group")


class _Obstacle(msgspec.Struct, frozen=True):
    """What keeps a pod from some nodes.

    Attributes:
        nodes: these, as a bitset.
    """

    nodes: int

    @property
    def spares_new(self) -> bool:
        """Whether it keeps the pod from no node that is added."""
        return False

    @property
    def change(self) -> object:
        """What is equal for all that one change takes away together."""
        return id(self)

    @property
    def lacking(self) -> str:
        """What these nodes are, to follow their number."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """What keeps the pod out, a noun phrase that names no nodes."""
        raise NotImplementedError

    def offers(self, nodes: int, layout: Layout) -> Iterator[Fix]:
        """What would take it away from some of its nodes."""
        yield from ()


class _Unmet(_Obstacle, frozen=True):
    """Something that the pod requires of nodes, or a taint that it does not tolerate."""

    failure: Failure

    @property
    def change(self) -> object:
        required = self.failure.requirement
        if isinstance(required, Label):
            if required.origin == Origin.GROUP:
                return required.source
            return MORE_NODES if required.expression.key not in _NOT_CHOSEN else id(self)
        return MORE_NODES if isinstance(required, OneOf) else id(self)

    @property
    def lacking(self) -> str:
        required = self.failure.requirement
        if isinstance(required, Label) and required.origin != Origin.GROUP:
            # KubeVirt writes its own labels into the same nodeSelector.
            key = required.expression.key
            if key == SCHEDULABLE:
                required = Label(Origin.SCHEDULABLE, required.expression)
            elif _is_kubevirts(key):
                required = Label(Origin.KUBEVIRT, required.expression)
            else:
                required = Label(required.origin, required.expression, "the nodeSelector of its pod")
            return required.lacking
        return self.failure.lacking

    @property
    def source(self) -> str:
        match self.failure.requirement:
            case Untainted():
                return "taints"
            case Uncordoned():
                return "cordons"
            case Label(origin=Origin.GROUP, source=source):
                return source
            case Label(expression=expression) if _is_kubevirts(expression.key):
                return "what KubeVirt requires"
            case Label():
                return "its nodeSelector"
        return "its node affinity"

    def offers(self, nodes: int, layout: Layout) -> Iterator[Fix]:
        taint, required = self.failure.taint, self.failure.requirement
        if isinstance(required, Uncordoned):
            name = layout.names[next(bitset_positions(nodes))]
            yield Fix(f"uncordon node {quote(name)}", "uncordon a node")
        elif isinstance(required, Untainted) and not taint:
            yield _for_all("have the VM tolerate the taints of more nodes")
        elif taint:
            # Those of Kubernetes itself are on nodes that are to have no VMs, or cannot have any now.
            if not (taint.key or "").partition("/")[0].endswith("kubernetes.io"):
                yield Fix(f"have the VM tolerate the taint {taint}", "have the VM tolerate a taint")
        elif isinstance(required, Label) and required.origin == Origin.GROUP:
            yield _for_all(f"ask your admin to prefer the rule of {required.source}")
            yield _LEAVE
        elif self.change == MORE_NODES:
            yield MORE_NODES


class _Full(_Obstacle, frozen=True):
    """Too little of a resource that is free."""

    resource: str
    source: ClassVar[str] = "room"

    @property
    def spares_new(self) -> bool:
        return True

    @property
    def lacking(self) -> str:
        return "with too many pods" if self.resource == POD_SLOTS else f"with too little {self.resource} free"


class _Apart(_Obstacle, frozen=True):
    """Anti-affinity, of the pod or of pods there.

    Attributes:
        group: the group whose rule it is; empty: of none.
        key: the label of nodes by which places differ.
    """

    group: str
    key: str

    @property
    def spares_new(self) -> bool:
        return self.key == HOSTNAME

    @property
    def lacking(self) -> str:
        if not self.group:
            return "where pod anti-affinity keeps it away"
        where = "where" if self.key == HOSTNAME else f"in whose {domain_word(self.key)}"
        return f"{where} another VM of group {quote(self.group)} runs"

    @property
    def source(self) -> str:
        return f"group {quote(self.group)}" if self.group else "pod anti-affinity"

    def offers(self, nodes: int, layout: Layout) -> Iterator[Fix]:
        if not self.group:
            yield _for_all("relax the pod anti-affinity")
            return
        # To prefer the rule helps only once those that run have other pods.
        stop = "stop another VM of its group"
        yield Fix(f"{stop}{self._place(nodes, layout)}", stop)
        yield _LEAVE

    def _place(self, nodes: int, layout: Layout) -> str:
        """Where that helps, if there is one place alone."""
        if nodes.bit_count() > _FEW:
            return ""
        rules, positions = layout.simulation.rules, list(bitset_positions(nodes))
        places = {rules.domain(self.key, position) for position in positions}
        if len(places) > 1:
            return ""
        if self.key == HOSTNAME:
            return f" on {layout.names[positions[0]]}"
        return f" in {domain_word(self.key)} {places.pop()}"


class _Away(_Obstacle, frozen=True):
    """No pod that the pod's affinity asks for.

    Attributes:
        group: the group whose rule it is; empty: of none.
        keys: the labels of nodes by which places differ.
    """

    group: str
    keys: tuple[str, ...]

    @property
    def lacking(self) -> str:
        if not self.group:
            return "where its pod affinity finds no pod"
        is_node = self.keys == (HOSTNAME,)
        where = "where" if is_node else f"in whose {' and '.join(map(domain_word, self.keys))}"
        return f"{where} no other VM of group {quote(self.group)} runs"

    @property
    def source(self) -> str:
        return f"group {quote(self.group)}" if self.group else "its pod affinity"

    def offers(self, nodes: int, layout: Layout) -> Iterator[Fix]:
        if self.group:
            yield _for_all(f"ask your admin to prefer the rule of group {quote(self.group)}")
            yield _LEAVE
        else:
            yield _for_all("relax its pod affinity")


class _Crowded(_Obstacle, frozen=True):
    """A hard topology spread constraint of the pod."""

    lacking: ClassVar[str] = "that its topology spread constraints exclude"
    source: ClassVar[str] = "its topology spread constraints"

    def offers(self, nodes: int, layout: Layout) -> Iterator[Fix]:
        yield _for_all("relax its topology spread constraints")


def explain_no_node(layout: Layout, pod: PlacedPod) -> tuple[Cause, Fix]:
    """Why no node can take a pod now, and what would help."""
    eligibility = layout.eligibility(pod)
    if pod.of_group:
        eligibility = layout.index.review(_by_source(pod))
    filtered = layout.simulation.filter(pod.simulated, eligibility)
    obstacles = list(_obstacles(layout, pod, filtered))
    candidates = eligibility.bitset & ~filtered.forbidden
    roomy = eligibility.everyone & filtered.with_free
    cause = Cause()
    if roomy or not candidates:
        cause = Cause(_counted(obstacles, eligibility), _sources(obstacles, candidates, roomy or eligibility.everyone))
    return cause, _fix(layout, pod, obstacles, candidates)


def group_between(layout: Layout, pod: PlacedPod, filtered: FilterResult) -> str:
    """The group whose rule keeps a pod from nodes that have room and that it may run on else; empty: none does."""
    roomy = filtered.eligibility.bitset & filtered.with_free & filtered.forbidden
    between = (each for each in _obstacles(layout, pod, filtered) if isinstance(each, _Apart | _Away))
    return next((each.group for each in between if each.group and each.nodes & roomy), "")


def free_some(layout: Layout, pod: PlacedPod, nodes: int) -> Fix | None:
    """What to free on the node that lacks least of those that lack only one thing, and are large enough for it.

    Args:
        layout: the cluster.
        pod: what needs room.
        nodes: those that could take it if they had room, as a bitset.
    """
    simulation, requests = layout.simulation, pod.simulated.requests
    nodes &= _large_enough(layout, requests)
    best: tuple[float, Fix] | None = None
    for name, amount in requests.items():
        lacking_it = nodes & ~simulation.with_free(name, amount)
        for other, requested in requests.items():
            if other != name:
                lacking_it &= simulation.with_free(other, requested)
        position = simulation.most_free_of(lacking_it, name)
        if position is None:
            continue
        resources = simulation.resources(position)
        lacking = amount - resources.free[name]
        share = lacking / max(resources.allocatable.get(name, 0), 1)
        if best is None or share < best[0]:
            named = f"free {format_amount(name, lacking)} of {name} on {layout.names[position]}"
            best = share, Fix(named, f"free some {name}")
    return best[1] if best else None


def is_tied(pod: PlacedPod, eligibility: Eligibility) -> bool:
    """Whether a pod may run only on nodes that it names and that exist, so that none that is added could take it."""
    for required in pod.requirements:
        named = _most_named(required)
        if named is not None and _meeting(required, eligibility).bit_count() >= named:
            return True
    return False


def either(fixes: Sequence[Fix]) -> Fix:
    """One of several; none: no single change would help."""
    if not fixes:
        return _NO_FIX
    return Fix(_listed([each.named for each in fixes]), _listed([each.plain for each in fixes]))


def _by_source(pod: PlacedPod) -> Requirements:
    """What a pod requires of nodes, with what its group has added to each term of its node affinity apart from that."""
    added = {each.expression for each in pod.of_group}
    found: list[Requirement] = []
    for required in pod.requirements:
        if isinstance(required, OneOf) and all(added <= {*each.expressions} for each in required.terms):
            found += pod.of_group
            rest = [
                replace(each, expressions=tuple(one for one in each.expressions if one not in added))
                for each in required.terms
            ]
            if all(each.problems or each.expressions or each.fields for each in rest):
                found.append(replace(required, terms=tuple(rest)))
        else:
            found.append(required)
    return tuple(found)


def _obstacles(layout: Layout, pod: PlacedPod, filtered: FilterResult) -> Iterator[_Obstacle]:
    """What keeps a pod from nodes, in the order in which kube-scheduler looks at it."""
    eligibility, simulation, info = filtered.eligibility, layout.simulation, pod.simulated.info
    for failure in sorted(_few_taints(eligibility.failures), key=_rank):
        yield _Unmet(failure.nodes, failure)
    for resource, amount in pod.simulated.requests.items():
        if nodes := eligibility.everyone & ~simulation.with_free(resource, amount):
            yield _Full(nodes, resource)
    rules = dict(filtered.apart)
    if nodes := rules.get(TOPOLOGY_SPREAD, 0):
        yield _Crowded(nodes)
    if nodes := rules.get(POD_AFFINITY, 0):
        terms = info.rules.affinity
        groups = {_group(each, info.labels) for each in terms}
        yield _Away(nodes, groups.pop() if len(groups) == 1 else "", tuple(each.key for each in terms))
    apart: dict[tuple[str, str], int] = {}
    for term, nodes in simulation.rules.kept_from(info):
        key = _group(term, info.labels), term.key
        apart[key] = apart.get(key, 0) | nodes
    yield from (_Apart(nodes, *key) for key, nodes in apart.items())


def _counted(obstacles: Iterable[_Obstacle], eligibility: Eligibility) -> str:
    """How many nodes are kept out by what, as kube-scheduler counts them: each by what it meets first."""
    left, found = eligibility.everyone, []
    for each in obstacles:
        if nodes := each.nodes & left:
            found.append((nodes.bit_count(), each))
            left &= ~nodes
        if not left:
            break
    more = ""
    if len(found) > _MOST_NAMED + 1:
        found.sort(key=lambda counted: -counted[0])
        more = f" and {len(found) - _MOST_NAMED} more reasons"
        found = found[:_MOST_NAMED]
    texts = ", ".join(f"{count} node(s) {each.lacking}" for count, each in found)
    return f"0/{eligibility.total} nodes are available" + (f": {texts}{more}" if texts else "")


def _sources(obstacles: Iterable[_Obstacle], candidates: int, nodes: int) -> str:
    """What keeps the VM from nodes, without saying which these are."""
    if candidates:
        return "those that it may run on have no room"
    left = nodes
    found: dict[str, None] = {}
    for each in obstacles:
        if each.nodes & left and not isinstance(each, _Full):
            found[each.source] = None
            left &= ~each.nodes
    return f"it may run on none that has room, because of {_listed(list(found), ' and ')}" if found else "there is none"


def _fix(layout: Layout, pod: PlacedPod, obstacles: Sequence[_Obstacle], candidates: int) -> Fix:
    """What would help: of nodes that one thing alone keeps out, to change that."""
    helpful = _alone(obstacles)
    for nodes, obstacle in helpful:
        if isinstance(obstacle, _Unmet) and isinstance(obstacle.failure.requirement, Uncordoned):
            return next(obstacle.offers(nodes, layout))
    room = free_some(layout, pod, candidates)
    found = [room] if room else []
    offered = 0
    for nodes, obstacle in helpful:
        offers = [each for each in obstacle.offers(nodes, layout) if each not in found]
        found += offers
        offered += bool(offers)
        if offered == _MOST_OFFERED:
            break
    if _helps_to_add(layout, pod, obstacles):
        found.append(_addition(layout, pod, obstacles, candidates))
    return either(found)


def _alone(obstacles: Iterable[_Obstacle]) -> list[tuple[int, _Obstacle]]:
    """The nodes to which one change would open the way, for each such change an obstacle; the most nodes first."""
    together: dict[object, tuple[int, _Obstacle]] = {}
    for each in obstacles:
        nodes, first = together.get(each.change, (0, each))
        together[each.change] = nodes | each.nodes, first
    once = twice = 0
    for nodes, _ in together.values():
        twice |= once & nodes
        once |= nodes
    alone = once & ~twice
    found = [(nodes & alone, each) for nodes, each in together.values() if nodes & alone]
    return sorted(found, key=lambda each: -each[0].bit_count())


def _helps_to_add(layout: Layout, pod: PlacedPod, obstacles: Iterable[_Obstacle]) -> bool:
    """Whether a node that is added could take the VM."""
    eligibility = layout.eligibility(pod)
    if is_tied(pod, eligibility):
        return False
    # By a zone in which all nodes are out, as one that is added there would be.
    keys = {each.key for each in pod.simulated.info.rules.affinity + pod.simulated.info.rules.anti_affinity}
    selected = {
        each.expression.key: _meeting(each, eligibility)
        for each in pod.requirements
        if isinstance(each, Label)
        and each.expression.key in keys
        and each.expression.operator == IN
        # Of several values there may be one without nodes.
        and len(each.expression.values) == 1
    }
    for each in obstacles:
        if isinstance(each, _Away):
            if HOSTNAME in each.keys or any(not selected[key] & ~each.nodes for key in each.keys if key in selected):
                return False
        elif isinstance(each, _Apart) and selected.get(each.key) and not selected[each.key] & ~each.nodes:
            return False
    return True


def _addition(layout: Layout, pod: PlacedPod, obstacles: Iterable[_Obstacle], candidates: int) -> Fix:
    """Which node to add."""
    requests = pod.simulated.requests
    for name, amount in requests.items():
        if candidates and not candidates & _large_enough(layout, {name: amount}):
            needed = format_amount(name, amount)
            return Fix(f"add a node that offers {needed} of {name}", f"add a node that offers more {name}")
    text = "add a node" if all(each.spares_new for each in obstacles) else "add a node that it may run on"
    return _for_all(text)


def _large_enough(layout: Layout, requests: dict[str, int]) -> int:
    """The nodes that have so much, whatever other pods use of it, as a bitset."""
    required = (Allocatable(Origin.RESOURCES, *each) for each in requests.items() if each[0] != POD_SLOTS)
    return layout.index.review(tuple(required)).bitset


def _few_taints(failures: Sequence[Failure]) -> Sequence[Failure]:
    """The failures, those of taints as one where there are many: each node may have a taint of its own."""
    tainted = [each for each in failures if each.taint]
    if len(tainted) <= _MOST_TAINTS:
        return failures
    together = Failure(tainted[0].requirement, None, bitset_union(each.nodes for each in tainted))
    return [together, *(each for each in failures if not each.taint)]


def _rank(failure: Failure) -> int:
    """Sorts as kube-scheduler's filters do; of labels, that of nodes where KubeVirt does not work comes first."""
    required = failure.requirement
    if isinstance(required, Label):
        return 2 if required.expression.key == SCHEDULABLE else 3
    return 0 if isinstance(required, Uncordoned) else 1 if isinstance(required, Untainted) else 4


def _is_kubevirts(key: str) -> bool:
    return key == _ARCHITECTURE or key.partition("/")[0].endswith("kubevirt.io")


def _group(term: AffinityTerm, labels: dict[str, str]) -> str:
    """The pod's own group, where a term is a rule of it; else empty."""
    group = labels.get(GROUP_LABEL, "")
    # Of affinity, all terms are in each.
    if not group or len(term.selectors) != 1:
        return ""
    return group if Expression.equals(GROUP_LABEL, group) in (term.selectors[0].expressions or ()) else ""


def _most_named(required: Requirement) -> int | None:
    """How many nodes a requirement names at most; None: it names none."""
    if isinstance(required, Label):
        expression = required.expression
        return len({*expression.values}) if (expression.key, expression.operator) == (HOSTNAME, IN) else None
    if not isinstance(required, OneOf):
        return None
    named: set[str] = set()
    for term in required.terms:
        if term.hopeless:
            continue
        own = [each.values for each in term.expressions if (each.key, each.operator) == (HOSTNAME, IN)]
        own += [each.values for each in term.fields if (each.key, each.operator) == (NAME_FIELD, IN)]
        if not own:
            return None
        shortest = min(own, key=len)
        named.update(shortest)
    return len(named)


def _meeting(required: Requirement, eligibility: Eligibility) -> int:
    """The nodes that meet a requirement of a pod, as a bitset."""
    failing = (each.nodes for each in eligibility.failures if not each.taint and each.requirement == required)
    return eligibility.everyone & ~next(failing, 0)


def _listed(texts: Sequence[str], last: str = ", or ") -> str:
    """Texts in a row, each once."""
    *first, end = dict.fromkeys(texts)
    return f"{', '.join(first)}{last}{end}" if first else end
