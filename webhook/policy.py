"""A policy as one value: its name, endpoints, and all that goes with them.

Each directory in `webhook.policies` has such a value, `webhook.policies.registry` has all of them. Routes, webhook
configurations, permissions and the meanings of reasons are derived from it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from webhook.admission.decision import Decision
from webhook.admission.reasons.catalog import Meaning
from webhook.admission.wire import Codec, Request
from webhook.errors import Unavailable
from webhook.facts import Facts
from webhook.findings import Finding
from webhook.k8s.resources import Resource
from webhook.k8s.rights import Right
from webhook.k8s.types.meta import Object
from webhook.names import Mode, PolicyName, Stage
from webhook.placement.additions import PodAdditions
from webhook.placement.machines import LauncherPod, Vmi
from webhook.settings.model import Settings
from webhook.settings.policy_section import PolicySettings

T = TypeVar("T")
V = TypeVar("V", bound=Object)
S = TypeVar("S", bound=PolicySettings)

_HandlerOf: TypeAlias = Callable[[V, Request[V], Facts, S], Coroutine[Any, Any, T]]
# A handler says what mode enforce would do; it has no clock, no network and no memory, and awaits nothing but facts.
# Its settings are its policy's section of those in force, as the namespace's annotations change it.
Handler: TypeAlias = _HandlerOf[V, S, Decision]


def combine(first: Handler[V, S], second: _HandlerOf[V, S, Decision | None]) -> Handler[V, S]:
    """A handler that decides what two say that change different fields; the second may be silent, and never denies.

    Where both change something, the patch is rendered for each review: `RepeatedChanges` are those of one handler.
    """

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


Verb: TypeAlias = Literal["mutate", "validate"]
Operations: TypeAlias = tuple[Literal["CREATE", "UPDATE", "DELETE"], ...]
# Expressions in CEL by their names, as a webhook entry's matchConditions.
Conditions: TypeAlias = Mapping[str, str]


def _always(_: PolicySettings) -> bool:
    return True


def _no_conditions(_: PolicySettings) -> Conditions:
    return {}


def _nothing_in_cel(_: PolicySettings) -> tuple[AdmissionPolicy, ...]:
    return ()


class Subresource(msgspec.Struct, frozen=True):
    """A subresource that is reviewed instead of the objects themselves, and the kind that is sent to it.

    Attributes:
        segment: what stands in the path and the entry's name instead of the resource, for a policy that reviews the
            objects themselves, too; empty: the resource.
    """

    name: str
    group: str
    kind: str
    segment: str = ""


class PolicyEndpoint(msgspec.Struct, Generic[V, S], frozen=True, kw_only=True):
    """One path of the server and one entry of a webhook configuration.

    Attributes:
        verb: ``mutate`` entries may patch.
        stage: which labels of namespaces lead here: ``enforce`` calls where the policy's label has that value, and may
            patch and deny; ``observe`` calls where it is ``warn`` or ``audit``, and never does, whatever the label
            says by then.
        group: API group of the resource; the kind of a subresource may have another.
        version: API version that the entry requests; the API server converts others to it.
        api_version: the group and the version, as objects have them.
        resource: plural name of the objects' resource.
        operations: those of the API server that it calls for. The handler gets the object, at DELETE the one that is
            to be deleted.
        handler: the policy's coroutine for these objects; `combine` makes one of two.
        codec: decodes the reviews that arrive, with the fields of the objects that the handler reads.
        on_error: ``deny``: the policy's ``failurePolicy`` counts; `both_stages` has the table of what that means.
        denies: whether overload, or what is wrong with the object, denies a request; the same table has it.
        namespaced: whether the objects are in namespaces. Of the others only Namespaces are reviewed, each by its own
            labels and annotations.
        sub_resource: subresource of the resource, for example ``eviction``; empty: none.
        is_on: whether the policy's settings let it look at these objects at all.
        match_conditions: CEL that keeps requests away which the policy would allow without changes anyway. It sees the
            request, the object and the old one, and nothing of the namespace; its settings are those of the file. So it
            cannot depend on a setting that annotations replace: the handler decides that.
        match_conditions_if_closed: further ones where requests are denied while no replica answers.
        object_selector: the entry's objectSelector; None: it has none.
        segment: what the path and the entry's name have for the resource.
        path: path on the server, which follows from the rest.
    """

    verb: Verb
    policy: PolicyName
    stage: Stage
    group: str
    version: str
    api_version: str
    resource: str
    kind: str
    operations: Operations
    handler: Handler[V, S]
    codec: Codec[V]
    on_error: Literal["allow", "deny"]
    denies: bool
    namespaced: bool = True
    sub_resource: str = ""
    is_on: Callable[[S], bool] = _always
    match_conditions: Callable[[S], Conditions] = _no_conditions
    match_conditions_if_closed: Callable[[S], Conditions] = _no_conditions
    object_selector: Mapping[str, Any] | None = None
    segment: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        # Made once: every review reads it several times.
        msgspec.structs.force_setattr(self, "segment", self.segment or self.resource)
        msgspec.structs.force_setattr(self, "path", f"/{self.verb}/{self.policy}/{self.segment}/{self.stage}")

    def object_of(self, request: Request[V]) -> V | None:
        """The object that the handler looks at; None: there is none for it. What is deleted has no new state."""
        deletes = request.operation == "DELETE" and "DELETE" in self.operations
        return request.old_object if deletes else request.object

    def fails_closed(self, settings: Settings) -> bool:
        """Whether ``failurePolicy`` denies what cannot be evaluated: the first column of the table of `both_stages`."""
        return self.on_error == "deny" and settings.policy(self.policy).fails_closed


# An endpoint of whatever objects and policy.
Endpoint: TypeAlias = PolicyEndpoint[Any, Any]

# What is a package's name, a key of the settings, a label's and part of a DNS name: without hyphen and underscore.
_NAME: Final = re.compile("[a-z]{1,40}")
_STAGES: Final[tuple[Stage, ...]] = ("enforce", "observe")


def both_stages(  # noqa: PLR0913 - all of an endpoint that differs between policies
    verb: Verb,
    policy: PolicyName,
    objects: Resource[V],
    handler: Handler[V, S],
    *,
    observer: Handler[V, S] | None = None,
    match_conditions: Callable[[S], Conditions],
    match_conditions_if_closed: Callable[[S], Conditions] = _no_conditions,
    is_on: Callable[[S], bool] = _always,
    denies: bool | None = None,
    always_ignores: bool = False,
    operations: Operations | None = None,
    subresource: Subresource | None = None,
    object_selector: Mapping[str, Any] | None = None,
) -> tuple[PolicyEndpoint[V, S], ...]:
    """The endpoints of both stages.

    In mode ``enforce``, whether a request that cannot be evaluated is denied depends on what keeps it from that: a
    look-up that failed, the deadline, a bug, or that no replica answers; or else overload or an object that cannot be
    read, which its sender can bring about to get around what the policy denies.

    ============================  ================================  ====================================
    endpoint                      look-up, deadline, no replica …   overload, an object that cannot be read
    ============================  ================================  ====================================
    mutates                       allowed                           allowed
    mutates, ``denies=True``      allowed                           overload denied, such an object allowed
    validates                     as ``failurePolicy`` says         denied
    validates, no such setting    allowed                           denied
    validates, ``denies=False``   as ``failurePolicy`` says         allowed
    ``always_ignores=True``       allowed                           allowed
    ============================  ================================  ====================================

    Whether a policy has the setting ``failurePolicy``, its section says (`PolicySettings.fails_closed`).

    Args:
        verb: as `PolicyEndpoint` has it, and so the rest.
        policy: the policy's name.
        objects: where they live, and how they are decoded.
        handler: the policy's coroutine for them.
        observer: what takes its place in the stage ``observe``, where the handler reads what ``enforce`` has written
            into another object before; None: the same handler.
        match_conditions: see `PolicyEndpoint`.
        match_conditions_if_closed: see `PolicyEndpoint`.
        is_on: see `PolicyEndpoint`.
        denies: the table's second column. None: what validates does, and what mutates does not.
        always_ignores: for what is worth no outage: no row of the table but the last.
        operations: None: CREATE, and UPDATE of VMs. A handler for UPDATE may deny only what the update changes. Objects
            that are older than the policy's rule are updated, too, also by KubeVirt itself, which removes finalizers:
            were that denied, nobody could change or delete them. What KubeVirt itself writes anew, such as a restored
            or expanded VM, was decided before; the VMs of a pool are not, whose template a user changes. A match
            condition that compares ``metadata.generation`` lets updates of the ``spec`` through, and none of labels and
            annotations.
        subresource: None: the objects themselves.
        object_selector: see `PolicyEndpoint`.
    """
    group, kind = (subresource.group, subresource.kind) if subresource else (objects.group, objects.kind)
    codec = Codec(objects.view, group, kind)
    return tuple(
        PolicyEndpoint(
            verb=verb,
            policy=policy,
            stage=stage,
            group=objects.group,
            version=objects.version,
            api_version=objects.api_version,
            resource=objects.plural,
            kind=kind,
            operations=operations or (("CREATE", "UPDATE") if kind == "VirtualMachine" else ("CREATE",)),
            handler=observer if observer and stage == "observe" else handler,
            codec=codec,
            on_error="deny" if verb == "validate" and not always_ignores else "allow",
            denies=not always_ignores and (verb == "validate" if denies is None else denies),
            namespaced=objects.namespaced,
            sub_resource=subresource.name if subresource else "",
            is_on=is_on,
            match_conditions=match_conditions,
            match_conditions_if_closed=match_conditions_if_closed,
            object_selector=object_selector,
            segment=subresource.segment if subresource else "",
        )
        for stage in _STAGES
    )


class AdmissionPolicy(msgspec.Struct, frozen=True):
    """What the API server evaluates itself for a policy, in clusters without this server.

    Attributes:
        name: of the object and, with the modes, of its bindings.
        resource: KubeVirt's, whose creation it looks at.
        spec: of the object, without what follows from the rest.
        modes: of namespaces, with a binding each.
        mutates: a MutatingAdmissionPolicy, which has mode ``enforce`` alone.
    """

    name: str
    resource: str
    spec: Mapping[str, Any]
    modes: tuple[Mode, ...]
    mutates: bool = False


class Objects(Protocol):
    """Reads a cluster's objects: `webhook.cluster.reader.ObjectReader`."""

    async def all(self, resource: Resource[V]) -> tuple[V, ...] | Unavailable:
        """All objects of a kind."""


class Installed(Protocol):
    """What a policy's check sees of an installation: `webhook.doctor.installation.Installation`."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def reader(self) -> Objects:
        """The objects of the cluster."""

    async def modes(self, policy: PolicyName) -> dict[str, str] | Unavailable:
        """The modes of a policy by namespace."""


# Where an owner writes a label or an annotation: in a VMI, or in a VM itself; and in a VM for its VMIs.
METADATA: Final = ("metadata.labels", "metadata.annotations")
OF_TEMPLATE: Final = tuple(f"spec.template.{place}" for place in METADATA)


class OwnerKey(msgspec.Struct, frozen=True):
    """A label or annotation by which the owner of a VM speaks to a policy, such as an opt-out.

    Where it has no effect, or has a value that nothing reads, its owner is warned (`webhook.forecast.misplaced`).

    Attributes:
        name: what follows the domain.
        vm: where it counts in a VM, of `METADATA` and `OF_TEMPLATE`; empty: nowhere.
        vmi: where it counts in a VMI that no VM stands behind, of `METADATA`.
        values: what may stand there; empty: anything.
    """

    name: str
    vm: tuple[str, ...]
    vmi: tuple[str, ...]
    values: tuple[str, ...] = ()


# A check of doctor's; `webhook.findings.check` decorates it.
Check: TypeAlias = Callable[[Installed], Awaitable[list[Finding]]]


class Policy(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """All that the rest of the program needs to know of a policy.

    Attributes:
        name: one lower-case word: a Python package, its section of the settings, its page in docs/, its namespace
            label, and part of the DNS names of its webhook entries. Others are a `ValueError`.
        settings: the section's class.
        reasons: what each reason code means that only this policy gives, by code.
        shared_reasons: the codes of `webhook.admission.reasons.common.SHARED` that it gives, too.
        endpoints: in the order in which the API server is to call them, and both stages of each.
        rights: what the facts that it awaits need beyond `webhook.cluster.rights`.
        annotations: those of namespaces that it reads, by `PolicySettings.with_annotations` alone. Where an annotation
            has a list of values, they are here: the API server denies others, and `doctor` names them. An empty list
            is for whatever else: text or JSON that can be wrong is denied by `validates_annotations`.
        owner_keys: the labels and annotations of VMs and VMIs by which owners speak to it, such as an opt-out.
        marks: the annotations by which objects show what it has written into them.
        checks: what `doctor` looks at for this policy alone.
        admission_policies: what the API server can evaluate without a server; an `InputError` where a rule needs a
            setting that is missing.
        follows: the policies whose changes of an object this one must see, if they are there.
        pods: what it adds to launcher pods by which nodes are chosen; None: nothing.
        annotations_decide: whether what a namespace's annotations change or deny is changed or denied whatever the
            settings say that they do not replace. Else nothing of it is certain where the installed settings cannot be
            read (`webhook.forecast.certain`).
        judges_what_exists: whether what it says of a new object holds for one that exists, too, so that a scan can find
            what was admitted without it. Not where it asks what room there is: what exists takes some of that.
        judges_captured: where it validates, whether that includes VMs whose instancetype or preference KubeVirt has
            captured. Not where it looks at sizes, or at what these say now: the captured copy counts.
    """

    name: PolicyName
    settings: type[S]
    reasons: Mapping[str, Meaning]
    shared_reasons: tuple[str, ...]
    endpoints: tuple[PolicyEndpoint[Any, S], ...]
    rights: tuple[Right, ...] = ()
    annotations: Mapping[str, tuple[str, ...]] = {}
    owner_keys: tuple[OwnerKey, ...] = ()
    marks: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    admission_policies: Callable[[S], tuple[AdmissionPolicy, ...]] = _nothing_in_cel
    follows: tuple[PolicyName, ...] = ()
    pods: PodAdder[S] | None = None
    annotations_decide: bool = False
    judges_what_exists: bool = True
    judges_captured: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a policy's name is one lower-case word, not {self.name!r}")


class PodAdder(msgspec.Struct, Generic[S], frozen=True):
    """What a policy adds to launcher pods, so that forecasts of where they go know it.

    Attributes:
        adds: what the next pod of a VMI gets, in mode ``enforce``.
        added: what the pod can have that a VMI runs in, if any, whatever the mode and the settings are by now.
    """

    adds: Callable[[Vmi, S], PodAdditions]
    added: Callable[[Vmi, LauncherPod | None], PodAdditions]


# A policy of whatever settings.
AnyPolicy: TypeAlias = Policy[Any]
