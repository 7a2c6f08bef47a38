"""What a placement depends on of a node: its labels, taints, and resources, in little memory.

- Amounts of resources are those of kube-scheduler: thousandths of CPUs, and whole units of everything else
  (k8s.io/kubernetes, pkg/scheduler/framework, ``Resource.Add``, and pkg/scheduler/util, ``IsScalarResourceName``).
- `Labels` takes a tenth of the memory of a dictionary: nodes of one kind have the same hundred keys and, but for their
  names and zones, the same values. So the table of keys and the usual values are shared.
- Sets of nodes are bitsets: the bits of an integer, a hundred times faster than sets where there are thousands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, KeysView, Mapping
from functools import reduce
from itertools import compress
from operator import is_not, or_
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from webhook.errors import InputError
from webhook.k8s.quantity import Format, Quantity, ResourceList, nanos
from webhook.k8s.types.core import NodeSpec, NodeWithoutImages
from webhook.k8s.types.meta import Condition, unix_time
from webhook.k8s.types.scheduling import EQUAL, EXISTS, Taint, Toleration
from webhook.kubevirt.heartbeat import ALIVE, SCHEDULABLE, Heartbeat
from webhook.text import shorten_middle

CPU: Final = "cpu"
MEMORY: Final = "memory"
# How many pods may be on a node.
POD_SLOTS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGEPAGES: Final = "hugepages-"
KVM_DEVICE: Final = "devices.kubevirt.io/kvm"

_NATIVE_DOMAIN: Final = "kubernetes.io/"
_KIB: Final = 2**10
_MIB: Final = 2**20
_NANOS: Final = 10**9
_NANOS_PER_MILLI: Final = 10**6
# What a node reports in a form that Kubernetes does not write is never a reason against the node.
_PLENTY: Final = 2**63 - 1
# Every kubelet reports these. Where one is missing, the report is not complete, which is never for good.
NOT_REPORTED: Final = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE), _PLENTY)


def is_counted_resource(resource: str) -> bool:
    """Whether kube-scheduler compares requests of this resource with what a node has."""
    if resource in {CPU, MEMORY, EPHEMERAL_STORAGE} or resource.startswith((HUGEPAGES, "attachable-volumes-")):
        return True
    return "/" in resource and (_NATIVE_DOMAIN in resource or not resource.startswith("requests."))


def is_extended_resource(resource: str) -> bool:
    """Whether a device plugin, a DRA driver or an admin provides it, not the kubelet by itself."""
    return "/" in resource and _NATIVE_DOMAIN not in resource


def to_scheduler_units(resource: str, quantity_nanos: int) -> int:
    """Billionths of a resource in kube-scheduler's unit, rounded up."""
    return -(-quantity_nanos // (_NANOS_PER_MILLI if resource == CPU else _NANOS))


def parse_allocatable(listed: ResourceList) -> dict[str, int]:
    """What a node reports, in kube-scheduler's units; names are interned, because thousands of nodes share them."""
    amounts = {}
    for resource, value in listed.items():
        if value is not None and is_counted_resource(resource):
            billionths = nanos(value)
            amounts[sys.intern(resource)] = _PLENTY if billionths is None else to_scheduler_units(resource, billionths)
    return amounts


def format_amount(resource: str, amount: int, *, is_offer: bool = False) -> str:
    """An amount in kube-scheduler's unit as Kubernetes writes the quantity; of odd bytes the MiB, rounded up.

    What a node offers is rounded down, so that less than a request always shows as less.
    """
    if in_bytes(resource) and amount >= _MIB and amount % _KIB:
        amount = (amount // _MIB if is_offer else -(-amount // _MIB)) * _MIB
    if resource == CPU:
        return str(Quantity(amount * _NANOS_PER_MILLI, Format.DECIMAL_SI))
    return str(Quantity.of(amount, Format.BINARY_SI if in_bytes(resource) else Format.DECIMAL_SI))


def to_nanos(resource: str, amount: int) -> int:
    """An amount in kube-scheduler's unit in billionths."""
    return amount * (_NANOS_PER_MILLI if resource == CPU else _NANOS)


def in_bytes(resource: str) -> bool:
    """Whether amounts of a resource are bytes: memory, huge pages, ephemeral storage."""
    return resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith(HUGEPAGES)


T = TypeVar("T")


class LabelKeys:
    """The keys of some nodes' labels, each with its index; equal ones are one object for as long as any is in use.

    Args:
        keys: the keys, in their order, interned.
        usual: the values of the first node that has these keys.
    """

    __slots__ = ("__weakref__", "indexes", "usual")

    def __init__(self, keys: tuple[str, ...], usual: tuple[str, ...]) -> None:
        self.indexes: Final = {key: index for index, key in enumerate(keys)}
        self.usual: Final = usual


_NO_VALUES: Final[dict[str, str]] = {}
# A node of which more than one value in so many differs has a tuple of its own, which then takes less.
_OWN_SHARE: Final = 8

_TABLES: Final[WeakValueDictionary[tuple[str, ...], LabelKeys]] = WeakValueDictionary()


class Labels(Mapping[str, str]):
    """The labels of one node, which never change.

    Args:
        labels: values by key; both are interned, because thousands of nodes share them.

    Attributes:
        table: the keys.
        usual: the values by index.
        own: those that differ, by key.
    """

    __slots__ = ("own", "table", "usual")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys, values = tuple(map(sys.intern, labels)), tuple(map(sys.intern, labels.values()))
        table = _TABLES.get(keys)
        if table is None:
            table = _TABLES[keys] = LabelKeys(keys, values)
        own = dict(compress(zip(table.indexes, values, strict=True), map(is_not, values, table.usual)))
        self.table: Final = table
        self.usual: Final = values if len(own) * _OWN_SHARE > len(values) else table.usual
        self.own: Final = own if own and self.usual is not values else _NO_VALUES

    def __getitem__(self, key: str) -> str:
        return self.own.get(key, self.usual[self.table.indexes[key]])

    def get(self, key: str, default: T | None = None) -> str | T | None:  # type: ignore[override] # one of two forms
        """The value of a label; ``default`` where there is none."""
        index = self.table.indexes.get(key)
        return default if index is None else self.own.get(key, self.usual[index])

    def __contains__(self, key: object) -> bool:
        return key in self.table.indexes

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.indexes)

    def __len__(self) -> int:
        return len(self.usual)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self.table.indexes.keys()

    def as_dict(self) -> dict[str, str]:
        """The same as a dictionary."""
        return dict(zip(self.table.indexes, self.usual, strict=True)) | self.own

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels) and other.usual is self.usual and other.table is self.table:
            return self.own == other.own
        return isinstance(other, Mapping) and self.as_dict() == dict(other)

    __hash__ = None  # type: ignore[assignment] # as of a dictionary

    def __repr__(self) -> str:
        return f"Labels({self.as_dict()!r})"


def plain_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as a dictionary, whose sets of entries are compared without a call for each of them."""
    return labels.as_dict() if isinstance(labels, Labels) else labels


def labels_starting_with(labels: Mapping[str, str], prefix: str, instead: str) -> dict[str, str]:
    """The labels with a prefix of KubeVirt's rules, sorted, with ``instead`` in its place."""
    written = sorted(key for key in labels if key.startswith(prefix))
    return {instead + key.removeprefix(prefix): labels[key] for key in written}


# Labels of nodes, and prefixes of such, that KubeVirt writes.
TRUE: Final = "true"
ARCHITECTURE: Final = "kubernetes.io/arch"
CPU_FEATURE: Final = "cpu-feature.node.kubevirt.io/"
CPU_MODEL: Final = "cpu-model.node.kubevirt.io/"
CPU_MODEL_MIGRATION: Final = "cpu-model-migration.node.kubevirt.io/"
CPU_VENDOR: Final = "cpu-vendor.node.kubevirt.io/"
HOST_MODEL_CPU: Final = "host-model-cpu.node.kubevirt.io/"
HOST_MODEL_FEATURES: Final = "host-model-required-features.node.kubevirt.io/"
HYPERV: Final = "hyperv.node.kubevirt.io/"
MACHINE_TYPE: Final = "machine-type.node.kubevirt.io/"
TSC_FREQUENCY: Final = "scheduling.node.kubevirt.io/tsc-frequency-"
TSC_FREQUENCY_OF_NODE: Final = "cpu-timer.node.kubevirt.io/tsc-frequency"
OBSOLETE_HOST_MODEL: Final = "node-labeller.kubevirt.io/obsolete-host-model"
CPU_MANAGER: Final = "kubevirt.io/cpumanager"
CPU_MANAGER_BEFORE: Final = "cpumanager"  # until KubeVirt 1.7
VM_ARCHITECTURE: Final = "kubevirt.io/vm-arch-"
RESERVED_PREFIXES: Final = (
    *(CPU_VENDOR, CPU_FEATURE, CPU_MODEL, CPU_MODEL_MIGRATION, HOST_MODEL_CPU, HOST_MODEL_FEATURES),
    *(MACHINE_TYPE, HYPERV, "node-labeller.kubevirt.io/"),
)


def reserved_keys(selector: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of a selector that are KubeVirt's to require, sorted.

    One of ``cpu-vendor`` switches off the rule that keeps a VM on its CPU vendor, ``cpu-feature`` and
    ``cpu-model-migration`` stick to later migrations of a host-model VM, the others lose against KubeVirt's own value.
    """
    return tuple(sorted([key for key in selector if key == SCHEDULABLE or key.startswith(RESERVED_PREFIXES)]))


HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
# PreferNoSchedule only costs score.
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)

# Equal to what `spec.unschedulable` means, with or without the taint (kube-scheduler's NodeUnschedulable).
CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)

# Node lifecycle conditions (Kubernetes 1.37), which kube-scheduler ignores, the most urgent first.
_UNDER_WAY: Final = ("GracefulNodeShutdownInProgress", "MaintenanceInProgress", "Drained", "DrainInProgress")
# Taints of the node maintenance operator, now and formerly, of cluster-autoscaler and of Karpenter.
_EMPTYING: Final = ("medik8s.io/drain", "kubevirt.io/drain", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
# Of taints that the kubelet and Kubernetes' controllers set by a node's condition.
_OF_CONDITIONS: Final = "node.kubernetes.io/"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)")
_MOST_TEXT: Final = 200


def is_of_lifecycle(taint: Taint) -> bool:
    """Whether a taint says what happens to a node now: it is cordoned, down, under pressure, or being emptied."""
    key = taint.key or ""
    return key.startswith(_OF_CONDITIONS) or key in _EMPTYING


class Departure(msgspec.Struct, frozen=True, gc=False):
    """Why VMs leave a node, or will have to.

    Attributes:
        is_under_way: VMs leave it now; else that is planned.
        at: when it begins, if the message has a time (RFC 3339), in Unix seconds.
    """

    cause: str
    is_under_way: bool
    at: float | None = None

    @classmethod
    def of(cls, view: NodeWithoutImages) -> Departure | None:
        """What a node's conditions and taints say; None: nothing."""
        conditions = (view.status.conditions if view.status else None) or ()
        true = {condition.type: condition for condition in conditions if condition.status == "True"}
        for kind in _UNDER_WAY:
            if kind in true:
                return cls(_cause(true[kind]), True)
        for taint in (view.spec.taints if view.spec else None) or ():
            if taint.key in _EMPTYING and taint.effect in _REPELLING:
                return cls(f"taint {taint}", True)
        if planned := true.get("MaintenancePlanned"):
            written = _TIME.search(planned.message or "")
            return cls(_cause(planned), False, unix_time(written[0]) if written else None)
        return None

    def clause(self, now: float) -> str:
        """What happens to the node, to follow its name; ``now`` is Unix time in seconds."""
        if self.is_under_way:
            return f"is being emptied ({self.cause})"
        minutes = -(-(self.at - now) // 60) if self.at else 0
        hours, rest = divmod(int(minutes), 60)
        soon = f" in {f'{hours}h ' if hours else ''}{rest}m" if minutes > 0 else ""
        return f"will be emptied for maintenance{soon} ({self.cause})"


def _cause(condition: Condition) -> str:
    """A condition's type, and its message or reason."""
    says = condition.message or condition.reason
    return shorten_middle(f"{condition.type}: {says}" if says else condition.type or "", _MOST_TEXT)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node, trimmed; texts are interned, because thousands of nodes share them.

    Attributes:
        taints: those with the effects NoSchedule and NoExecute, sorted, each once; without a cordoned node's own.
        no_kvm: KubeVirt's device plugin says that it has none to give; where it says nothing, it is not known.
        allocatable: what pods could request of the whole node, as `parse_allocatable` counts it; None: the kubelet has
            not reported it yet.
        departure: why VMs leave it; None: they don't.
        heartbeat: what it says of its virt-handler.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    no_kvm: bool = False
    allocatable: dict[str, int] | None = None
    departure: Departure | None = None
    heartbeat: Heartbeat = ALIVE

    @classmethod
    def of(cls, view: NodeWithoutImages) -> Node:
        """Trim what the API server sends; an `InputError` where it has no name."""
        # Nearly always it is also the value of a label.
        name = sys.intern(view.meta.name or "")
        if not name:
            raise InputError("has no name", "a node's metadata")
        spec = view.spec or NodeSpec()
        unschedulable = bool(spec.unschedulable)
        taints = {
            Taint(sys.intern(taint.key or ""), sys.intern(taint.value or ""), sys.intern(taint.effect or ""))
            for taint in spec.taints or ()
            if taint.effect in _REPELLING
        }
        if unschedulable:
            taints.discard(CORDON)
        allocatable = view.status.allocatable if view.status else None
        return cls(
            name=name,
            labels=Labels(view.meta.labels or {}),
            taints=tuple(sorted(taints)),
            unschedulable=unschedulable,
            no_kvm=allocatable is not None and str(allocatable.get(KVM_DEVICE)) == "0",
            allocatable=None if allocatable is None else NOT_REPORTED | parse_allocatable(allocatable),
            departure=Departure.of(view),
            heartbeat=Heartbeat.of(view.meta.labels or {}, view.meta.annotations or {}),
        )

    @property
    def is_being_emptied(self) -> bool:
        """Whether VMs leave it now."""
        return self.departure is not None and self.departure.is_under_way

    def lacks(self, resource: str, amount: int) -> bool:
        """Whether a request can never fit, whatever runs here: the whole node has less, as far as it has reported."""
        return self.allocatable is not None and self.allocatable.get(resource, 0) < amount


class Tolerated:
    """The taints that some tolerations cover: no effect covers all effects, no key all keys, no operator means Equal.

    Gt and Lt cover nothing, as in the API server's own default: the feature is behind a gate that is closed. Taints and
    tolerations may both be thousands, so they are looked up instead of compared.

    Args:
        tolerations: the tolerations of a pod or a VMI.
    """

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._covered: Final[set[tuple[str, str, str | None]]] = set()
        for each in tolerations:
            operator = each.operator or EQUAL
            if operator == EXISTS:
                self._covered.add((each.key or "", each.effect or "", None))
            elif operator == EQUAL:
                self._covered.add((each.key or "", each.effect or "", each.value or ""))

    def covers(self, taint: Taint) -> bool:
        """Whether any of the tolerations covers a taint."""
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect, None) in self._covered or (key, effect, taint.value) in self._covered:
                    return True
        return False


# Of an integer, as many bits as CPython computes with at once, twice.
_WORD_BITS: Final = 60
_WORD: Final = 2**_WORD_BITS - 1
_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")


def bitset_items(bits: int, items: Iterable[T]) -> Iterator[T]:
    """The items whose position is in the set."""
    return compress(items, bin(bits)[:1:-1].encode().translate(_TRUTH))


def bitset_union(sets: Iterable[int]) -> int:
    """The members of any of the sets."""
    return reduce(or_, sets, 0)


def bitset_positions(bits: int) -> Iterator[int]:
    """The members of a set in their order; each word that has any costs the width of the integer."""
    position = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        position += gap
        word = bits & _WORD
        while word:
            lowest = word & -word
            yield position + lowest.bit_length() - 1
            word ^= lowest
        bits >>= _WORD_BITS
        position += _WORD_BITS
