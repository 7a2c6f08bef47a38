"""The endpoints: which path is served by which policy, on which view, and the answer when it cannot be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, TypeAlias

import msgspec

from webhook import names
from webhook.admission.decision import Decision
from webhook.admission.wire import Codec, Request
from webhook.facts import Facts
from webhook.k8s.types.core import Eviction, SchedulingPod, TargetPod
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.types.views import UnstructuredVm, VirtualMachine, VirtualMachineInstance
from webhook.names import Policy, Stage
from webhook.placement.machines import Migration
from webhook.policies.eviction import pods as evictions
from webhook.policies.instancetypes import virtualmachineinstances, virtualmachines
from webhook.policies.migration import pods, virtualmachineinstancemigrations
from webhook.policies.scheduling import scheduler_name, spread
from webhook.review.replay import Handler, S, V, with_confirmation
from webhook.settings.model import Settings


def combine(first: Handler[V, S], second: Callable[[V, Request[V], Facts, S], Decision | None]) -> Handler[V, S]:
    """The policy that decides what two say that change different fields.

    Args:
        first: always says something.
        second: says None where it has nothing to say; it never denies.
    """

    def handler(view: V, request: Request[V], facts: Facts, settings: S) -> Decision:
        decision, addition = first(view, request, facts, settings), second(view, request, facts, settings)
        if addition is None:
            return decision
        # The most important reason comes first, and one that changes something is more important.
        reasons = (
            (*addition.reasons, *decision.reasons)
            if addition.changes and not decision.changes
            else (*decision.reasons, *addition.reasons)
        )
        return Decision(
            reasons,
            (*decision.changes, *addition.changes),
            decision.denial,
            (*decision.warnings, *addition.warnings),
            {**decision.notes, **addition.notes},
            decision.details,
        )

    return handler


class PolicySection(msgspec.Struct, Generic[S], frozen=True):
    """A policy and its section of the settings.

    Attributes:
        policy: the policy's name.
        of: returns the section of a snapshot.
    """

    policy: Policy
    of: Callable[[Settings], S]


_SCHEDULING: Final = PolicySection("scheduling", lambda settings: settings.scheduling)
_INSTANCETYPES: Final = PolicySection("instancetypes", lambda settings: settings.instancetypes)
_MIGRATION: Final = PolicySection("migration", lambda settings: settings.migration)
_EVICTION: Final = PolicySection("eviction", lambda settings: settings.eviction)


class PolicyEndpoint(msgspec.Struct, Generic[V, S], frozen=True):
    """One path of the server and one entry of a webhook configuration.

    Attributes:
        verb: ``mutate`` entries may patch.
        section: the policy that the endpoint belongs to, with its section of the settings.
        stage: whether the endpoint enforces or only observes.
        group: API group of the resource; the kind of a subresource may have another.
        version: API version that the entry requests; the API server converts others to it.
        resource: plural name of the objects' resource.
        operations: operations that the entry matches.
        handler: the policy's function for these objects.
        codec: decodes the endpoint's reviews.
        on_error: the answer when a look-up, the deadline or a bug prevents an evaluation; ``deny``: denied where the
            policy's failurePolicy is Fail.
        denies: whether the policy may deny a request here in mode ``enforce``; then overload does, too.
        sub_resource: subresource of the resource, for example ``eviction``; empty: none.
        policy: the policy's name, which follows from its section.
        path: path on the server, which follows from the rest.
    """

    verb: Literal["mutate", "validate"]
    section: PolicySection[S]
    stage: Stage
    group: str
    version: str
    resource: str
    kind: str
    operations: tuple[str, ...]
    handler: Handler[V, S]
    codec: Codec[V]
    on_error: Literal["allow", "deny"]
    denies: bool
    sub_resource: str = ""
    policy: Policy = "scheduling"
    path: str = ""

    def __post_init__(self) -> None:
        # Made once: every review reads them several times.
        msgspec.structs.force_setattr(self, "policy", self.section.policy)
        msgspec.structs.force_setattr(self, "path", f"/{self.verb}/{self.policy}/{self.resource}/{self.stage}")

    def fails_closed(self, settings: Settings) -> bool:
        """Whether requests are denied while they cannot be evaluated."""
        return self.on_error == "deny" and self.section.of(settings).failure_policy == "Fail"


# An endpoint of whatever objects and policy.
Endpoint: TypeAlias = PolicyEndpoint[Any, Any]


class _Target(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """What an entry is about.

    Attributes:
        resource: plural name of the objects' resource.
        view: the class into which the objects are decoded.
        operations: operations that the entry matches.
        group: API group of the resource.
        sub_resource: subresource of the resource; empty: none.
        kinds_group: API group of the kind, where it is another one than the resource's.
    """

    resource: str
    view: type[V]
    kind: str
    operations: tuple[str, ...] = ("CREATE",)
    group: str = names.KUBEVIRT_GROUP
    sub_resource: str = ""
    kinds_group: str | None = None


_VMS: Final = _Target(
    resource="virtualmachines", view=VirtualMachine, kind="VirtualMachine", operations=("CREATE", "UPDATE")
)
_WHOLE_VMS: Final = _Target(
    resource="virtualmachines", view=UnstructuredVm, kind="VirtualMachine", operations=("CREATE", "UPDATE")
)
_VMIS: Final = _Target(resource="virtualmachineinstances", view=VirtualMachineInstance, kind="VirtualMachineInstance")
_WHOLE_VMIS: Final = _Target(resource="virtualmachineinstances", view=Unstructured, kind="VirtualMachineInstance")
_PODS: Final = _Target(resource="pods", view=SchedulingPod, kind="Pod", group="")
_TARGET_PODS: Final = _Target(resource="pods", view=TargetPod, kind="Pod", group="")
_EVICTIONS: Final = _Target(
    resource="pods", view=Eviction, kind="Eviction", group="", sub_resource="eviction", kinds_group="policy"
)
_MIGRATIONS: Final = _Target(
    resource="virtualmachineinstancemigrations", view=Migration, kind="VirtualMachineInstanceMigration"
)


def _both_stages(
    verb: Literal["mutate", "validate"],
    section: PolicySection[S],
    target: _Target[V],
    handler: Handler[V, S],
    *,
    denies: bool = False,
) -> Iterable[PolicyEndpoint[V, S]]:
    """The endpoints of both stages. What mutates allows a request that it cannot evaluate; what validates does not."""
    codec = Codec(target.view, target.group if target.kinds_group is None else target.kinds_group, target.kind)
    stages: tuple[Stage, ...] = ("enforce", "observe")
    for stage in stages:
        yield PolicyEndpoint(
            verb=verb,
            section=section,
            stage=stage,
            group=target.group,
            version="v1",
            resource=target.resource,
            kind=target.kind,
            operations=target.operations,
            handler=handler,
            codec=codec,
            on_error="deny" if verb == "validate" else "allow",
            denies=denies or verb == "validate",
            sub_resource=target.sub_resource,
        )


# In the order of the configurations' entries: instancetypes before scheduling, which must know what a VM's sets.
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *_both_stages("mutate", _INSTANCETYPES, _WHOLE_VMS, with_confirmation(virtualmachines.apply_defaults)),
    *_both_stages(*("mutate", _INSTANCETYPES, _WHOLE_VMIS, virtualmachineinstances.fill_vmi), denies=True),
    *_both_stages(
        "mutate", _SCHEDULING, _VMS, with_confirmation(combine(scheduler_name.schedule_vm, spread.spread_vm))
    ),
    *_both_stages("mutate", _SCHEDULING, _VMIS, combine(scheduler_name.schedule_vmi, spread.spread_vmi)),
    *_both_stages("mutate", _SCHEDULING, _PODS, combine(scheduler_name.schedule_pod, spread.spread_pod)),
    *_both_stages("mutate", _MIGRATION, _MIGRATIONS, virtualmachineinstancemigrations.warn_of_migration),
    *_both_stages("mutate", _MIGRATION, _TARGET_PODS, pods.constrain_pod),
    # It never changes anything, but only a mutating webhook is called before virt-api sets the VM's evacuationNodeName.
    *_both_stages("mutate", _EVICTION, _EVICTIONS, evictions.evaluate_eviction, denies=True),
    *_both_stages("validate", _MIGRATION, _MIGRATIONS, virtualmachineinstancemigrations.validate_migration),
    *_both_stages("validate", _INSTANCETYPES, _WHOLE_VMS, with_confirmation(virtualmachines.validate_vm)),
)

BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}
