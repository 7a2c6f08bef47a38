"""The size that a VM or VMI sets itself, as KubeVirt computes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Quantity, ResourceList
from webhook.k8s.types.core import ResourceRequirements
from webhook.k8s.types.meta import View
from webhook.placement.machines import Cpu, Memory

_COUNTS: Final = ("sockets", "cores", "threads")
# KubeVirt takes the guest's CPUs from the limit first, and its memory from the request (pkg/defaults).
_CPU_SOURCES: Final = ("limits", "requests")
_MEMORY_SOURCES: Final = ("requests", "limits")


class SizedDomain(View, frozen=True):
    """``spec.domain`` of a VMI, as far as it says a size."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    resources: ResourceRequirements | None = None


class Amount(NamedTuple):
    """One of the amounts of a size.

    Attributes:
        field: the path below ``spec.domain``.
        text: as it is written.
    """

    field: str
    value: Quantity
    text: str


class Size(NamedTuple):
    """What a VM or VMI sets itself.

    Attributes:
        fields: where, as paths below ``spec.domain``.
        vcpus: how many the guest has, and the fields that say so; at least one.
        memory: the guest's memory; None: nothing says how much, so that KubeVirt starts no such VM.
        cpu_amounts: the CPUs that are requested, and their limit.
        memory_amounts: the memory that is requested, and its limit.
    """

    fields: tuple[str, ...]
    vcpus: int
    vcpus_field: str
    memory: Amount | None
    cpu_amounts: tuple[Amount, ...]
    memory_amounts: tuple[Amount, ...]

    @classmethod
    def of(cls, domain: SizedDomain | None) -> Self | None:
        """The size that a domain sets itself; None: none.

        Raises:
            InputError: an amount is not a quantity, which the schema of KubeVirt's CRD does not accept.
        """
        if domain is None:
            return None
        cpu, memory = domain.cpu or Cpu(), domain.memory or Memory()
        counts = [f"cpu.{name}" for name in _COUNTS if getattr(cpu, name)]
        cpus, memories = (dict(_amounts(domain.resources, name)) for name in ("cpu", "memory"))
        guest = _amount("memory.guest", memory.guest)
        page = _amount("memory.hugepages.pageSize", memory.hugepages.page_size if memory.hugepages else None)
        written = [each.field for each in (guest, page, *cpus.values(), *memories.values()) if each]
        if not counts and not written:
            return None
        vcpus, source = cpu.vcpus, ", ".join(counts) or "cpu"
        if not counts and cpus:
            amount = next(cpus[kind] for kind in _CPU_SOURCES if kind in cpus)
            # KubeVirt keeps it in 32 bits, where an absurd number wraps around; here it stays absurd.
            vcpus, source = amount.value.value, amount.field
        given = [memories[kind] for kind in _MEMORY_SOURCES if kind in memories and memories[kind].value]
        return cls(
            (*counts, *written),
            max(vcpus, 1),
            source,
            guest or next(iter((*given, *filter(None, [page]))), None),
            tuple(cpus.values()),
            tuple(memories.values()),
        )

    @property
    def most_cpus(self) -> int:
        """The most CPUs that any field says, in billionths."""
        return max(self.vcpus * 10**9, *(each.value.nanos for each in self.cpu_amounts), 0)

    @property
    def most_memory(self) -> int:
        """The most memory that any field says, in billionths of a byte."""
        amounts = (*self.memory_amounts, *((self.memory,) if self.memory else ()))
        return max((each.value.nanos for each in amounts), default=0)

    def changes_cpus(self, old: Size | None) -> bool:
        """Whether it gives a VM other CPUs than the size that the VM had."""
        return old is None or self.vcpus != old.vcpus or self.most_cpus > old.most_cpus

    def changes_memory(self, old: Size | None) -> bool:
        """Whether it gives a VM other memory than the size that the VM had."""
        if old is None:
            return True
        before, now = (each.memory.value if each.memory else None for each in (old, self))
        return now != before or self.most_memory > old.most_memory


def _amounts(resources: ResourceRequirements | None, name: str) -> Iterator[tuple[str, Amount]]:
    lists: dict[str, ResourceList | None] = {}
    if resources:
        lists = {"requests": resources.requests, "limits": resources.limits}
    for kind, listed in lists.items():
        if found := _amount(f"resources.{kind}.{name}", (listed or {}).get(name)):
            yield kind, found


def _amount(field: str, value: Any) -> Amount | None:
    if value is None or value == "":
        return None
    text = quantity.text(value)
    try:
        return Amount(field, quantity.parse(text), text)
    except InputError as error:
        raise InputError(f"{field} {error.what}", field) from None
