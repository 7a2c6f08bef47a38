"""Whether a namespace's ResourceQuotas admit the target pod of a migration, which needs all that the VM has once more.

The rules are kube-apiserver's (pkg/quota/v1/evaluator/core/pods.go, plugin/pkg/admission/limitranger/admission.go and
apiserver's pkg/admission/plugin/resourcequota/controller.go, Kubernetes 1.36). What the target pod requests is a lower
bound (`webhook.placement.demand`), so a quota that is called exceeded is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.quantity import Format, Nanos, Quantity, ResourceList, nanos, read_resource_list
from webhook.k8s.resources import Resource
from webhook.k8s.types.core import ContainerRequests, ResourceRequirements
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.scheduling import Affinity
from webhook.k8s.types.selectors import DOES_NOT_EXIST, EXISTS, IN
from webhook.placement.demand import is_sidecar, sum_requests
from webhook.placement.machines import LIMIT_RANGER, LauncherPod, LauncherPodSpec
from webhook.placement.nodes import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES,
    MEMORY,
    format_amount,
    in_bytes,
    is_extended_resource,
    to_nanos,
)


class _ScopeRequirement(View, frozen=True):
    scope_name: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _ScopeSelector(View, frozen=True):
    match_expressions: list[_ScopeRequirement] | None = None


class _QuotaSpec(View, frozen=True):
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class QuotaStatus(View, frozen=True):
    """``status`` of a ResourceQuota, by which the API server admits pods."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(Object, frozen=True):
    """A ResourceQuota (core/v1)."""

    spec: _QuotaSpec | None = None
    status: QuotaStatus | None = None


class _LimitRangeItem(View, frozen=True):
    type: str | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    minimum: ResourceList | None = msgspec.field(default=None, name="min")
    maximum: ResourceList | None = msgspec.field(default=None, name="max")
    max_limit_request_ratio: ResourceList | None = None


class _LimitRangeSpec(View, frozen=True):
    limits: list[_LimitRangeItem] | None = None


class LimitRange(Object, frozen=True):
    """A LimitRange (core/v1), by what it gives to containers that say nothing themselves."""

    spec: _LimitRangeSpec | None = None


QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange", True, LimitRange)

# Counted for every pod that exists; the pods that VMs have left count too, until KubeVirt deletes them.
PODS_THAT_EXIST: Final = "count/pods"
_NANOS: Final = 10**9
# Each container must set these where a quota limits them (enforcePodContainerConstraints).
_TO_BE_SET: Final = {
    **{name: (False, name.removeprefix("requests.")) for name in (CPU, MEMORY, "requests.cpu", "requests.memory")},
    **{f"limits.{name}": (True, name) for name in (CPU, MEMORY)},
}
_LIMITED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
# What admission wrote into a container that said nothing itself, in the words of the annotation.
_DEFAULTED: Final = re.compile(r"([^;:]+) (request|limit) for (?:init )?container ([^\s;]+)")
_LONGEST_ANNOTATION: Final = 4096


class PodUsage(msgspec.Struct, frozen=True):
    """What a target pod counts for in quotas.

    Attributes:
        amounts: billionths by the names that quotas use.
        unset: containers without a value, by the names in `_TO_BE_SET`.
        priority_class: the pod's; empty: none.
        crosses_namespaces: whether its affinity looks at other namespaces.
        pods: how many pods these are.
    """

    amounts: Nanos
    unset: dict[str, tuple[str, ...]]
    priority_class: str = ""
    crosses_namespaces: bool = False
    pods: int = 1

    @property
    def key(self) -> Hashable:
        """The same for pods that count alike. Amounts may exceed 64 bits, so that no encoding holds them."""
        counted = frozenset(self.amounts.items()), frozenset(self.unset.items())
        return *counted, self.priority_class, self.crosses_namespaces, self.pods

    @property
    def negated(self) -> PodUsage:
        """What a pod gives back when it is deleted."""
        return msgspec.structs.replace(self, amounts={name: -amount for name, amount in self.amounts.items()})


NO_USAGE: Final = PodUsage({}, {})


def add_usages(usages: Iterable[PodUsage]) -> tuple[PodUsage, ...]:
    """The sums of what pods count for, one for each set of scopes, so that a review does not grow with the pods."""
    sums: dict[tuple[str, bool], PodUsage] = {}
    for each in usages:
        scopes = each.priority_class, each.crosses_namespaces
        total = sums.setdefault(scopes, PodUsage({}, {}, *scopes, pods=0))
        amounts = {name: total.amounts.get(name, 0) + amount for name, amount in each.amounts.items()}
        sums[scopes] = msgspec.structs.replace(total, amounts=total.amounts | amounts, pods=total.pods + each.pods)
    return tuple(sums.values())


class QuotaReview(msgspec.Struct, frozen=True):
    """What a namespace's quotas say to a target pod.

    Attributes:
        problem: why the API server denies it, a clause in its own words; empty: no quota does.
        at_once: how many such pods fit at the same time; None: no quota limits them.
    """

    problem: str = ""
    at_once: int | None = None
    limited_by: str = ""
    gaps: tuple[str, ...] = ()


def usage_of(pod: LauncherPod | None, requests: Mapping[str, int], ranges: Iterable[LimitRange]) -> PodUsage:
    """What the next target pod of a VM counts for, which may have a present pod, and LimitRanges in its namespace.

    ``requests`` is what the target pod requests at least, in kube-scheduler's unit (`webhook.placement.demand`).
    """
    spec = (pod.spec if pod else None) or LauncherPodSpec()
    everyone = [each for each in (*(spec.containers or ()), *(spec.init_containers or ())) if each]
    before = _totals(spec, _written)
    values = _defaulted(pod, everyone, ranges)
    after = _totals(spec, lambda container: values[id(container)])
    requested = {name: to_nanos(name, amount) for name, amount in requests.items()}
    for name in before[0].keys() | after[0].keys():
        requested[name] = requested.get(name, 0) + after[0].get(name, 0) - before[0].get(name, 0)
    unset: dict[str, tuple[str, ...]] = {}
    has_container = any(spec.containers or ())
    if has_container and spec.resources is None:
        for quota_name, (is_limit, resource) in _TO_BE_SET.items():
            names = (each.name or "" for each in everyone if resource not in values[id(each)][is_limit])
            unset[quota_name] = tuple(sorted(names))
    return PodUsage(dict(_named(requested, after[1])), unset, spec.priority_class_name or "", _crosses_namespaces(spec))


def exceeded_limits(
    ranges: Iterable[LimitRange], requests: Mapping[str, int], limits: Nanos, limited: Container[str]
) -> list[str]:
    """Why LimitRanges keep a new pod from being created, clauses (admission plugin LimitRanger, validation of pods).

    Args:
        ranges: those of the namespace.
        requests: what the pod's one container requests at least, in kube-scheduler's unit.
        limits: the limits that the VM sets, in billionths.
        limited: resources that get a limit elsewhere.
    """
    problems: dict[str, None] = {}
    defaults: dict[str, tuple[int, str]] = {}
    for each in ranges:
        name = each.meta.name or ""
        for item in (each.spec.limits if each.spec else None) or ():
            if item.type not in ("Container", "Pod"):
                continue
            for resource, most in read_resource_list(item.maximum or {}).items():
                requested = requests.get(resource, 0)
                if max(to_nanos(resource, requested), limits.get(resource, 0)) > most:
                    asks = f"requests {format_amount(resource, requested)}"
                    if limits.get(resource, 0) > most:
                        asks = f"has a limit of {Quantity(limits[resource], Format.BINARY_SI)}"
                    problems[
                        f"LimitRange {name} allows {_written_in(item.maximum, resource)} {resource}, and it {asks}"
                    ] = None
            if item.type == "Container":
                for resource, most in read_resource_list(item.default or {}).items():
                    # Which of several defaults wins is not known.
                    defaults[resource] = max(defaults.get(resource, (-1, "")), (most, name))
    for resource, (most, name) in defaults.items():
        requested = requests.get(resource, 0)
        if resource not in limits and resource not in limited and to_nanos(resource, requested) > most:
            limit = format_amount(resource, most // to_nanos(resource, 1))
            asks = format_amount(resource, requested)
            problems[f"LimitRange {name} limits it to {limit} {resource}, and it requests {asks}"] = None
    return list(problems)


def exceeded_cpu_bounds(
    ranges: Iterable[LimitRange], request: int, limit: int | None, *, may_be_limited: bool = False
) -> list[str]:
    """Why ``min`` and ``maxLimitRequestRatio`` keep a new pod from being created, clauses, of its guest's container.

    Only of CPUs is known exactly what KubeVirt requests. What a LimitRange says of whole pods is left out: others than
    the guest's container count there.

    Args:
        ranges: those of the namespace.
        request: exactly what the container requests, in billionths; 0: nothing, so that its limit counts, or a default.
        limit: its limit, in billionths; None: the VM sets none, and KubeVirt does not, so that a default counts.
        may_be_limited: whether it is not known if KubeVirt sets a limit.
    """
    items = [
        (each.meta.name or "", item)
        for each in ranges
        for item in (each.spec.limits if each.spec else None) or ()
        if item.type == "Container"
    ]
    # The API server takes the maximum for the default limit where there is none. Which of several wins is not known.
    defaults = [read_resource_list({**(item.maximum or {}), **(item.default or {})}).get(CPU) for _, item in items]
    limits = [limit] if limit is not None else [each for each in defaults if each is not None]
    least = min(limits, default=0)
    asked = request or limit or 0
    problems: dict[str, None] = {}
    for name, item in items:
        minimum = read_resource_list(item.minimum or {}).get(CPU)
        if minimum is not None and 0 < asked < minimum:
            wants = f"LimitRange {name} wants at least {_written_in(item.minimum, CPU)} {CPU}"
            problems[f"{wants}, and it requests {_cpus(asked)}"] = None
        ratio = read_resource_list(item.max_limit_request_ratio or {}).get(CPU)
        if ratio is None or not request or (may_be_limited and limit is None):
            continue
        allows = f"LimitRange {name} allows a {CPU} limit of at most {_written_in(item.max_limit_request_ratio, CPU)}"
        if not limits:
            problems[f"{allows} times the request, and it has no limit"] = None
        elif least * _NANOS > request * ratio:
            has = f"it has a limit of {_cpus(least)}, and requests {_cpus(request)}"
            problems[f"{allows} times the request, and {has}"] = None
    return list(problems)


def _cpus(amount: int) -> str:
    return str(Quantity(amount, Format.DECIMAL_SI))


def _written_in(amounts: ResourceList | None, resource: str) -> str:
    return str((amounts or {}).get(resource))


def review_quotas(
    quotas: Iterable[ResourceQuota], usage: PodUsage, *, left_behind: int = 0, beside: Sequence[PodUsage] = ()
) -> QuotaReview:
    """Whether the quotas of a namespace admit one more target pod now.

    ``left_behind`` is how many pods earlier migrations of a plan have left, and ``beside`` are pods that it makes
    meanwhile, beyond what the quotas count.
    """
    problems, gaps = [], []
    at_once: int | None = None
    limited_by = ""
    for quota in sorted(quotas, key=lambda each: each.meta.name or ""):
        if not _counts(quota, usage):
            continue
        name = quota.meta.name or ""
        status = quota.status or QuotaStatus()
        hard = read_resource_list(status.hard or {})
        used = read_resource_list(status.used or {})
        spend(len(hard), "resources of quotas")
        if missing := [each for each in hard if usage.unset.get(each)]:
            what = "; ".join(f"{each} for: {','.join(usage.unset[each])}" for each in sorted(missing))
            problems.append(f"failed quota: {name}: must specify {what}")
        requested = {each: amount for each, amount in usage.amounts.items() if each in hard and amount > 0}
        if not hard or requested.keys() - used.keys():
            gaps.append(f"what ResourceQuota {name} leaves is not known, because it has no status yet")
            continue
        if left_behind and PODS_THAT_EXIST in hard:
            used = {**used, PODS_THAT_EXIST: used[PODS_THAT_EXIST] + left_behind * _NANOS}
        for other in beside:
            if _counts(quota, other):
                used = {each: amount + other.amounts.get(each, 0) for each, amount in used.items()}
        over = sorted(each for each, amount in requested.items() if used[each] + amount > hard[each])
        if over:
            problems.append(
                f"exceeded quota: {name}, requested: {_listed(over, requested)},"
                f" used: {_listed(over, used, status.used)}, limited: {_listed(over, hard, status.hard)}"
            )
        fitting = [(hard[each] - used[each]) // amount for each, amount in requested.items()]
        if fitting and (at_once is None or min(fitting) < at_once):
            at_once, limited_by = max(0, min(fitting)), name
    return QuotaReview(problems[0] if problems else "", at_once, limited_by, tuple(gaps))


_Values = tuple[Nanos, Nanos]  # requests, limits


def _totals(spec: LauncherPodSpec, values: Callable[[ContainerRequests], _Values]) -> _Values:
    """A pod's requests and limits, from those of its containers."""
    own = spec.resources or ResourceRequirements()

    def total(which: int, pod_level: ResourceList | None, overhead: ResourceList | None) -> Nanos:
        first = [(values(each)[which], is_sidecar(each)) for each in spec.init_containers or () if each]
        together = [values(each)[which] for each in spec.containers or () if each]
        return sum_requests(together, first, pod_level=pod_level, overhead=overhead)

    return total(0, own.requests, spec.overhead), total(1, own.limits, None)


def _written(container: ContainerRequests) -> _Values:
    limits = container.resources.limits if container.resources else None
    return container.requests, read_resource_list(limits or {})


def _defaulted(
    pod: LauncherPod | None, containers: Iterable[ContainerRequests], ranges: Iterable[LimitRange]
) -> dict[int, _Values]:
    """The containers' requests and limits with the defaults of today's LimitRanges in place of those of then."""
    annotation = (pod.meta.annotation(LIMIT_RANGER) if pod else None) or ""
    written_by_admission = {
        (container, kind, resource.strip())
        for resources, kind, container in _DEFAULTED.findall(annotation[:_LONGEST_ANNOTATION])
        for resource in resources.split(",")
    }
    defaults = [
        (read_resource_list(item.default_request or {}), read_resource_list(item.default or {}))
        for item in chain.from_iterable((each.spec.limits if each.spec else None) or () for each in ranges)
        if item.type == "Container"
    ]
    spend(len(defaults), "items of LimitRanges")
    values = {}
    for container in containers:
        both = tuple(
            {name: value for name, value in own.items() if (container.name, kind, name) not in written_by_admission}
            for own, kind in zip(_written(container), ("request", "limit"), strict=True)
        )
        for which in (0, 1):
            for each in defaults:
                for name, value in each[which].items():
                    both[which].setdefault(name, value)
        values[id(container)] = (both[0], both[1])
    return values


def _named(requests: Nanos, limits: Nanos) -> Iterator[tuple[str, int]]:
    """The names by which quotas count what a pod requests (podComputeUsageHelper)."""
    yield PODS_THAT_EXIST, _NANOS
    yield "pods", _NANOS
    for name, amount in requests.items():
        if name in _LIMITED or name.startswith(HUGEPAGES):
            yield name, amount
        if name in _LIMITED or name.startswith(HUGEPAGES) or is_extended_resource(name):
            yield f"requests.{name}", amount
    for name in _LIMITED:
        if name in limits:
            yield f"limits.{name}", limits[name]


def _crosses_namespaces(spec: LauncherPodSpec) -> bool:
    """Whether any of its terms, also a preferred one, looks at other namespaces (usesCrossNamespacePodAffinity)."""
    affinity = spec.affinity or Affinity()
    terms: list[Any] = []
    for each in filter(None, (affinity.pod_affinity, affinity.pod_anti_affinity)):
        terms += each.required or ()
        terms += [term.get("podAffinityTerm") for term in each.preferred or () if isinstance(term, dict)]
    return any(isinstance(term, dict) and (term.get("namespaces") or "namespaceSelector" in term) for term in terms)


def _counts(quota: ResourceQuota, usage: PodUsage) -> bool:
    """Whether a quota counts a launcher pod, which requests CPU or memory, and has no deadline."""
    spec = quota.spec or _QuotaSpec()
    required = [_ScopeRequirement(scope, EXISTS) for scope in spec.scopes or ()]
    required += (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    return all(_in_scope(each, usage) for each in required)


def _in_scope(required: _ScopeRequirement, usage: PodUsage) -> bool:
    match required.scope_name:
        case "NotTerminating" | "NotBestEffort":
            return True
        case "CrossNamespacePodAffinity":
            return usage.crosses_namespaces
        case "PriorityClass":
            name, values = usage.priority_class, required.values or ()
            if required.operator in (EXISTS, DOES_NOT_EXIST):
                return bool(name) == (required.operator == EXISTS)
            return (bool(name) and name in values) == (required.operator == IN)
    return False


def _listed(names: Iterable[str], amounts: Nanos, written: ResourceList | None = None) -> str:
    """Amounts as the API server lists them: as they are written in a quota's status, where that is the amount."""

    def text(name: str) -> str:
        amount, value = amounts[name], written.get(name) if written else None
        if value is not None and nanos(value) == amount:
            return str(value)
        is_binary = in_bytes(name.removeprefix("requests.").removeprefix("limits.")) and not amount % (1024 * _NANOS)
        return str(Quantity(amount, Format.BINARY_SI if is_binary else Format.DECIMAL_SI))

    return ",".join(f"{name}={text(name)}" for name in names)
