"""Amounts of resources as kube-scheduler counts them: thousandths of CPUs, and whole units of everything else.

Sources: k8s.io/kubernetes, pkg/scheduler/framework (``Resource.Add``) and pkg/scheduler/util
(``IsScalarResourceName``).
"""

from __future__ import annotations

import sys
from typing import Final, TypeAlias

from webhook.errors import InputError
from webhook.k8s.quantity import Format, Quantity, parse, text

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGEPAGES: Final = "hugepages-"
KVM_DEVICE: Final = "devices.kubevirt.io/kvm"

_ATTACHABLE_VOLUMES: Final = "attachable-volumes-"
_NATIVE_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."
_KIB: Final = 2**10
_MIB: Final = 2**20
_NANOS: Final = 10**9
_NANOS_PER_MILLI: Final = 10**6
# What a node reports in a form that Kubernetes does not write is never a reason against the node.
_PLENTY: Final = 2**63 - 1
# Every kubelet reports these. Where one is missing, the report is not complete, which is never for good.
NOT_REPORTED: Final = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE), _PLENTY)

# What a resource list holds in an object, by the resource's name.
Listed: TypeAlias = dict[str, str | int | float | None]


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler compares requests of this resource with what a node has."""
    if resource in {CPU, MEMORY, EPHEMERAL_STORAGE} or resource.startswith((HUGEPAGES, _ATTACHABLE_VOLUMES)):
        return True
    return "/" in resource and (_NATIVE_DOMAIN in resource or not resource.startswith(_QUOTA_PREFIX))


def is_extended(resource: str) -> bool:
    """Whether a device plugin, a DRA driver or an admin provides it, not the kubelet by itself."""
    return "/" in resource and _NATIVE_DOMAIN not in resource


def nanos(value: str | float) -> int | None:
    """A quantity in JSON in billionths; None: it is not a quantity."""
    try:
        return parse(text(value)).nanos
    except InputError:
        return None


def to_scheduler_units(resource: str, quantity_nanos: int) -> int:
    """Billionths of a resource in kube-scheduler's unit, rounded up."""
    return -(-quantity_nanos // (_NANOS_PER_MILLI if resource == CPU else _NANOS))


def allocatable(listed: Listed) -> dict[str, int]:
    """What a node reports, in kube-scheduler's units; names are interned, because thousands of nodes share them."""
    amounts = {}
    for resource, value in listed.items():
        if value is not None and is_counted(resource):
            known = nanos(value)
            amounts[sys.intern(resource)] = _PLENTY if known is None else to_scheduler_units(resource, known)
    return amounts


def format_request(resource: str, amount: int) -> str:
    """An amount in kube-scheduler's unit as Kubernetes writes the quantity; of odd bytes the MiB, rounded up."""
    return _format_amount(resource, -(-amount // _MIB) * _MIB if _is_odd(resource, amount) else amount)


def format_offer(resource: str, amount: int) -> str:
    """An amount that a node offers, rounded down, so that less than a request always shows as less.

    Args:
        resource: the name of the resource, for example ``memory``.
        amount: thousandths of CPUs, or whole units of any other resource.
    """
    return _format_amount(resource, amount // _MIB * _MIB if _is_odd(resource, amount) else amount)


def _format_amount(resource: str, amount: int) -> str:
    if resource == CPU:
        return str(Quantity(amount * _NANOS_PER_MILLI, Format.DECIMAL_SI))
    return str(Quantity.of(amount, Format.BINARY_SI if _in_bytes(resource) else Format.DECIMAL_SI))


def _in_bytes(resource: str) -> bool:
    return resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith(HUGEPAGES)


def _is_odd(resource: str, amount: int) -> bool:
    return _in_bytes(resource) and amount >= _MIB and amount % _KIB != 0
