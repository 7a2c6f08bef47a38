"""The endpoints: which path is served by which policy, on which view, and the answer when it cannot be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from webhook import names
from webhook.admission.decision import Decision
from webhook.admission.wire import Codec, Request
from webhook.facts import Facts
from webhook.k8s.resources import PODS, Resource
from webhook.k8s.types.core import Eviction, SchedulingPod, TargetPod
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS, VMIS
from webhook.kubevirt.types.views import UnstructuredVm, VirtualMachine
from webhook.names import Policy, Stage
from webhook.placement.machines import MIGRATIONS
from webhook.policies.eviction import pods as evictions
from webhook.policies.instancetypes import virtualmachineinstances, virtualmachines
from webhook.policies.migration import pods, virtualmachineinstancemigrations
from webhook.policies.scheduling import scheduler_name, spread
from webhook.settings.model import (
    EvictionSettings,
    InstancetypeSettings,
    MigrationSettings,
    PolicySettings,
    SchedulingSettings,
    Settings,
)

T = TypeVar("T")
V = TypeVar("V", bound=Object)
S = TypeVar("S", bound=PolicySettings)

_HandlerOf: TypeAlias = Callable[[V, Request[V], Facts, S], Coroutine[Any, Any, T]]
# A handler says what mode enforce would do; it has no clock, no network and no memory, and awaits nothing but facts.
# Its settings are its policy's section of the snapshot, with the namespace's parameters worked in.
Handler: TypeAlias = _HandlerOf[V, S, Decision]


def combine(first: Handler[V, S], second: _HandlerOf[V, S, Decision | None]) -> Handler[V, S]:
    """A handler that decides what two say that change different fields; the second may be silent, and never denies."""

    async def handler(view: V, request: Request[V], facts: Facts, settings: S) -> Decision:
        decision = await first(view, request, facts, settings)
        addition = await second(view, request, facts, settings)
        if addition is None:
            return decision
        # The most important reason comes first, and one that changes something is more important.
        is_first = addition.changes and not decision.changes
        one, other = (addition, decision) if is_first else (decision, addition)
        return Decision(
            (*one.reasons, *other.reasons),
            (*decision.changes, *addition.changes),
            decision.denial,
            (*decision.warnings, *addition.warnings),
            {**decision.notes, **addition.notes},
            decision.details,
        )

    return handler


class PolicyEndpoint(msgspec.Struct, Generic[V, S], frozen=True, kw_only=True):
    """One path of the server and one entry of a webhook configuration.

    Attributes:
        verb: ``mutate`` entries may patch.
        group: API group of the resource; the kind of a subresource may have another.
        version: API version that the entry requests; the API server converts others to it.
        api_version: the group and the version, as objects have them.
        resource: plural name of the objects' resource.
        handler: the policy's function for these objects.
        on_error: the answer when a look-up, the deadline or a bug prevents an evaluation; ``deny``: denied where the
            policy's failurePolicy is Fail.
        denies: whether the policy may deny a request here in mode ``enforce``; then overload does, too.
        sub_resource: subresource of the resource, for example ``eviction``; empty: none.
        path: path on the server, which follows from the rest.
    """

    verb: Literal["mutate", "validate"]
    policy: Policy
    stage: Stage
    group: str
    version: str
    api_version: str
    resource: str
    kind: str
    operations: tuple[str, ...]
    handler: Handler[V, S]
    codec: Codec[V]
    on_error: Literal["allow", "deny"]
    denies: bool
    sub_resource: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        # Made once: every review reads it several times.
        msgspec.structs.force_setattr(self, "path", f"/{self.verb}/{self.policy}/{self.resource}/{self.stage}")

    def fails_closed(self, settings: Settings) -> bool:
        """Whether requests are denied while they cannot be evaluated."""
        return self.on_error == "deny" and settings.policy(self.policy).fails_closed

    def is_on(self, settings: Settings) -> bool:
        """Whether the settings let the policy look at these objects at all."""
        scheduling, instancetypes = settings.scheduling, settings.instancetypes
        in_vms = scheduling.virtual_machines or scheduling.spread_virtual_machines
        in_vmis = scheduling.virtual_machine_instances or scheduling.spread_virtual_machine_instances
        switches = {
            (names.SCHEDULING, UNSTRUCTURED_VMS.plural): in_vms,
            (names.SCHEDULING, UNSTRUCTURED_VMIS.plural): in_vmis,
            (names.INSTANCETYPES, UNSTRUCTURED_VMS.plural): instancetypes.virtual_machines,
            (names.INSTANCETYPES, UNSTRUCTURED_VMIS.plural): instancetypes.virtual_machine_instances,
        }
        return switches.get((self.policy, self.resource), True)


# An endpoint of whatever objects and policy.
Endpoint: TypeAlias = PolicyEndpoint[Any, Any]


_SCHEDULING: Final = (names.SCHEDULING, SchedulingSettings)
_INSTANCETYPES: Final = (names.INSTANCETYPES, InstancetypeSettings)
_MIGRATION: Final = (names.MIGRATION, MigrationSettings)
_EVICTION: Final = (names.EVICTION, EvictionSettings)

_VMS: Final = UNSTRUCTURED_VMS.decoded_as(VirtualMachine)
_WHOLE_VMS: Final = UNSTRUCTURED_VMS.decoded_as(UnstructuredVm)
_PODS: Final = PODS.decoded_as(SchedulingPod)
_TARGET_PODS: Final = PODS.decoded_as(TargetPod)
_EVICTIONS: Final = PODS.decoded_as(Eviction)


def _both_stages(
    verb: Literal["mutate", "validate"],
    section: tuple[Policy, type[S]],
    objects: Resource[V],
    handler: Handler[V, S],
    *,
    denies: bool = False,
) -> Iterable[PolicyEndpoint[V, S]]:
    """The endpoints of both stages. What mutates allows a request that it cannot evaluate; what validates does not."""
    is_eviction = objects is _EVICTIONS
    group, kind = ("policy", "Eviction") if is_eviction else (objects.group, objects.kind)
    codec = Codec(objects.view, group, kind)
    stages: tuple[Stage, ...] = ("enforce", "observe")
    for stage in stages:
        yield PolicyEndpoint(
            verb=verb,
            policy=section[0],
            stage=stage,
            group=objects.group,
            version=objects.version,
            api_version=objects.api_version,
            resource=objects.plural,
            kind=kind,
            operations=("CREATE", "UPDATE") if kind == "VirtualMachine" else ("CREATE",),
            handler=handler,
            codec=codec,
            on_error="deny" if verb == "validate" else "allow",
            denies=denies or verb == "validate",
            sub_resource="eviction" if is_eviction else "",
        )


# In the order of the configurations' entries: instancetypes before scheduling, which must know what a VM's sets.
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *_both_stages("mutate", _INSTANCETYPES, _WHOLE_VMS, virtualmachines.apply_defaults),
    *_both_stages("mutate", _INSTANCETYPES, UNSTRUCTURED_VMIS, virtualmachineinstances.fill_vmi, denies=True),
    *_both_stages("mutate", _SCHEDULING, _VMS, combine(scheduler_name.schedule_vm, spread.spread_vm)),
    *_both_stages("mutate", _SCHEDULING, VMIS, combine(scheduler_name.schedule_vmi, spread.spread_vmi)),
    *_both_stages("mutate", _SCHEDULING, _PODS, combine(scheduler_name.schedule_pod, spread.spread_pod)),
    *_both_stages("mutate", _MIGRATION, MIGRATIONS, virtualmachineinstancemigrations.warn_of_migration),
    *_both_stages("mutate", _MIGRATION, _TARGET_PODS, pods.constrain_pod),
    # It never changes anything, but only a mutating webhook is called before virt-api sets the VM's evacuationNodeName.
    *_both_stages("mutate", _EVICTION, _EVICTIONS, evictions.evaluate_eviction, denies=True),
    *_both_stages("validate", _MIGRATION, MIGRATIONS, virtualmachineinstancemigrations.validate_migration),
    *_both_stages("validate", _INSTANCETYPES, _WHOLE_VMS, virtualmachines.validate_vm),
)

BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}
