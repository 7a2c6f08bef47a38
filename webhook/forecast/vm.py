"""What becomes of a VM: the VMI that KubeVirt makes of it, what the policies do with it, and where its pods can go.

Field names of the explanations are camelCase; a field is never removed or given another meaning under the same schema,
but more may come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID, uuid5

import msgspec

from webhook import names
from webhook.admission.reasons import common
from webhook.admission.redaction import redact
from webhook.cluster.directory import describe_wrong_type
from webhook.cluster.reader import RESOURCES, read_once
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import (
    NOT_READ,
    Facts,
    HeadroomKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    Unreadable,
)
from webhook.forecast import misplaced
from webhook.forecast.additions import additions_by
from webhook.forecast.certain import by_settings, is_uncertain
from webhook.forecast.requests import (
    RequestReport,
    WithHeadroom,
    create,
    drain,
    eviction_of,
    migration_of,
    pod_of,
    remove,
    tainted_away,
)
from webhook.forecast.smaller_start import smaller_starts
from webhook.forecast.snapshot import CREATED_BY
from webhook.forecast.start import (
    admission_keys,
    condition_of,
    devices_of_networks,
    notes_of_group,
    review_admission,
    waiting_for,
    with_frequency,
)
from webhook.forecast.validation import check_metadata
from webhook.k8s.documents import format_path
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Namespace, Unstructured, View
from webhook.k8s.types.selectors import IN
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, find_in_use
from webhook.kubevirt.definitions import DEFINITIONS, NAMES, Definition, fields_of
from webhook.kubevirt.go_json.origins import FieldOrigin, leaves
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get
from webhook.kubevirt.releases.fields import Definitions
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.resources import KUBEVIRTS, STORED_VMS, UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS, VMIS
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.types.views import KubeVirt, VirtualMachine, VirtualMachineInstance
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied
from webhook.placement.demand import target_pod_demand
from webhook.placement.eligibility import Eligibility, eligibility_notes
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, PLACED_VMIS, LauncherPod, Vmi
from webhook.placement.migrations import EvictionEffect, eviction_effect
from webhook.placement.nodes import CPU, KVM_DEVICE, MEMORY, format_amount
from webhook.placement.requirements import Elsewhere, Label, Requirements
from webhook.placement.running_pods import RunningPod
from webhook.placement.target_pods import NODE_SELECTOR_ANNOTATION, target_pod_requirements
from webhook.policies.common import migration_targets
from webhook.policies.common.required_facts import read, read_configuration
from webhook.policies.common.volumes import NewClaim, review_volumes_of_starting
from webhook.policies.defaults.given import DefaultReport, defaults_of, of_settings, still_in_force, unread_of
from webhook.policies.defaults.settings import DEFAULTS as DEFAULTS_POLICY
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.views import has_opted_out as defaults_opted_out
from webhook.policies.eviction.settings import EvictionSettings
from webhook.policies.headroom import reasons as headroom
from webhook.policies.headroom.pods import placed_in
from webhook.policies.instancetypes.namespace_defaults import INJECTED_ANNOTATIONS
from webhook.policies.migration.explanation import MigrationExplanation, Nodes, Question, ReasonReport, reasons_of
from webhook.policies.migration.explanation import explain as explain_migration
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.policies.scheduling import spread
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.review import scope
from webhook.review.driver import drive
from webhook.settings.model import Settings
from webhook.text import pluralize

# Of a VMI that does not exist yet.
_UID: Final = "00000000-0000-0000-0000-000000000000"

# The namespace of generated UUIDs: KubeVirt's are random, these are the same in every run.
_UUIDS: Final = UUID("b9d2c9a6-2f0a-5d0e-8d5e-0d3c3b0f6b52")

_DEFAULT_SCHEDULER: Final = "default-scheduler"
VM_SCHEMA: Final = "kubevirt-webhook.github.io/explain-vm/v1alpha1"
T = TypeVar("T")
ObjectId: TypeAlias = tuple[str, str, str]  # kind, namespace and name
# What policies write into a stored VM's template, by the annotation that says so. What they write into VMIs and pods
# alone is in no VM, and an instancetype and a preference show themselves.
WRITTEN_INTO_VMS: Final[Mapping[str, str]] = {
    names.INJECTED_SCHEDULER_ANNOTATION: "spec.schedulerName",
    names.INJECTED_SPREAD_ANNOTATION: "spec.topologySpreadConstraints",
}
SPREAD_SCHEMA: Final = "kubevirt-webhook.github.io/explain-spread/v1alpha1"

_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, VirtualMachine)


class FieldReport(View, frozen=True):
    """A value of the VMI.

    Attributes:
        value: plain JSON, without secrets.
        origin: where it comes from: ``vm`` (or ``vmi``), ``instancetype``, ``preference``, ``cluster settings``,
            ``KubeVirt default`` or ``kubevirt-webhook``.
        name: the instancetype's or preference's; empty for other origins.
        random: KubeVirt makes another value each time.
    """

    path: str
    value: Any
    origin: str
    name: str = ""
    random: bool = False


class NamedReport(View, frozen=True):
    """An instancetype or a preference that takes part.

    Attributes:
        inferred_from: the volume from which it was inferred; empty: the VM names it.
    """

    role: str
    kind: str
    name: str
    inferred_from: str
    injected: bool


class VmExplanation(View, frozen=True):
    """The whole explanation.

    Attributes:
        kind: ``VirtualMachine``, or ``VirtualMachineInstance`` where no VM stands behind it.
        running_on: the node that it runs on; empty: none.
        scheduler: the scheduler of its next pods; empty: there will be none, or it depends on the installed settings,
            or on whether a scheduler is available, and that is not known.
        denial: why KubeVirt itself would not create its VMI; empty: it would.
        nodes: the nodes on which it could start, as far as they do not depend on other pods; None: there is no VMI.
        migration: where it could migrate to; None: it does not run.
        gaps: what could not be read or is not evaluated, clauses: it may be able to start on fewer nodes.
        reasons: why it could not start on the other nodes, the largest class first.
        notes: what else may keep it from starting on one of the nodes, clauses.
        obstacles: why it starts on none of them, because its pod is not created, clauses.
        waiting: why it has not started yet, or why KubeVirt could not create its VMI, a clause; empty: it runs, or
            nothing says why.
        defaults: those of the defaults policy that it has, or would get at its next start.
        warnings: what its owner wrote under our domain without effect, sentences.
        settings_gap: why the installed settings are not known, a clause: what depends on them is not evaluated then,
            and policies that the namespace has no label for may do more.
        until_restarted: what its pods have until then, and from then on, clauses; empty: the same, or it does not run.
    """

    schema: str
    namespace: str
    name: str
    kind: str
    running_on: str
    scheduler: str
    requests: tuple[RequestReport, ...]
    denial: str
    named: tuple[NamedReport, ...]
    fields: tuple[FieldReport, ...]
    nodes: Nodes | None
    migration: MigrationExplanation | None
    gaps: tuple[str, ...]
    reasons: tuple[ReasonReport, ...] = ()
    notes: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    waiting: str = ""
    defaults: tuple[DefaultReport, ...] = ()
    warnings: tuple[str, ...] = ()
    settings_gap: str = ""
    until_restarted: tuple[str, ...] = ()

    @property
    def is_denied(self) -> bool:
        """Whether a policy or KubeVirt would deny the VM or its VMI."""
        vms = ("VirtualMachine", "VirtualMachineInstance")
        return bool(self.denial) or any(each.is_denied for each in self.requests if each.kind in vms)


class UnreadableObjectError(InputError):
    """An object that KubeVirt's rules look up cannot be read."""


class BlockingLookups:
    """Looks objects up for KubeVirt's rules, first in the files of a command, then in the source; each once.

    The rules are plain functions. What they look up to create a VMI follows from what they have found: a volume leads
    to a DataVolume, that to a DataSource, and the names of revisions are computed. So they run once, and where the
    source has not everything in memory, in a thread, which waits while the event loop reads.

    Args:
        others: the objects in the files.
        source: the source of all others; None: they do not exist.
    """

    def __init__(self, others: Mapping[ObjectId, Json], source: Cluster | None) -> None:
        self._objects: Final[dict[ObjectId, Json | None]] = dict(others)
        self._source: Final = source

    async def run(self, function: Callable[[Get], T]) -> T:
        """The result of a function that looks objects up.

        Raises:
            UnreadableObjectError: an object cannot be read.
            InputError: the function raises it.
        """
        loop, source = asyncio.get_running_loop(), self._source

        def get(kind: str, namespace: str, name: str) -> Json | None:
            identity = (kind, namespace, name)
            if identity not in self._objects and source:
                key = ObjectKey(RESOURCES[kind], namespace, name)
                obj = source.peek(key)
                if obj is NOT_READ:
                    obj = asyncio.run_coroutine_threadsafe(read_once(source, key), loop).result()
                if isinstance(obj, Unavailable):
                    place = f"{namespace}/{name}" if namespace else name
                    what = f"cannot be read: {obj.why}"
                    raise UnreadableObjectError(what, f"{kind} {place}", "add it to the file")
                self._objects[identity] = cast("Json | None", obj)
            return self._objects.get(identity)

        if source is None or source.answers_at_once:
            return function(get)
        # A thread of its own: in those of the loop's executor aiohttp resolves names, for which this one may wait.
        executor = ThreadPoolExecutor(1, "kubevirt-rules")
        try:
            return await loop.run_in_executor(executor, copy_context().run, function, get)
        finally:
            # Without a wait: where this is cancelled, the thread ends only after the loop has gone on.
            executor.shutdown(wait=False)


async def configuration_of(
    others: Mapping[ObjectId, Json], source: Cluster | None, release: Release | None = None
) -> tuple[ClusterConfig, str]:
    """KubeVirt's configuration, and a clause that names its source.

    Args:
        others: the objects in the files, among which may be a KubeVirt object.
        source: the cluster whose KubeVirt object counts where the files have none; None: KubeVirt's built-in settings
            count.
        release: whose rules apply, with the fields that its tables list, instead of the release of the KubeVirt object.

    Raises:
        InputError: the KubeVirt object cannot be read, or is not valid.
    """
    installs = [_view(obj, KubeVirt) for (kind, _, _), obj in others.items() if kind == "KubeVirt"]
    if not installs and source:
        read = await read_once(source, ListKey(KUBEVIRTS, ""))
        if isinstance(read, Unavailable):
            raise InputError(f"cannot be read: {read.why}", "KubeVirt", "add the KubeVirt object to the file")
        installs = [*(read or ())]
    kubevirt = find_in_use(installs)
    if kubevirt is None:
        defaults = ClusterConfig.of(None, rules=rules_of(release)) if release else DEFAULTS
        return defaults, "KubeVirt's defaults"
    name = f"KubeVirt {kubevirt.meta.namespace or ''}/{kubevirt.meta.name or ''}"
    definitions = None if release else await _definitions(others, source)
    try:
        configuration = ClusterConfig.of_kubevirt(kubevirt, release, definitions)
    except InputError as error:
        raise InputError(error.what, f"{name}: {error.where}", error.fix) from None
    if not kubevirt.is_in_use:
        return configuration, f"KubeVirt's defaults; {name} has no status.phase, so KubeVirt does not use it yet"
    return configuration, name


async def _definitions(others: Mapping[ObjectId, Json], source: Cluster | None) -> Definitions | None:
    own = fields_of(_view(obj, Definition) for (kind, _, _), obj in others.items() if kind == DEFINITIONS.kind)
    if own or not source:
        return own
    keys: list[Key[Any]] = [ObjectKey(DEFINITIONS, "", name) for name in NAMES.values()]
    reads = await asyncio.gather(*(read_once(source, key) for key in keys))
    # For a user who may not read them the tables by version count.
    is_read = not any(isinstance(each, Unavailable) for each in reads)
    return fields_of(each for each in reads if isinstance(each, Definition)) if is_read else None


def _view(obj: Json, view: type[T]) -> T:
    try:
        return msgspec.convert(obj, view)
    except msgspec.ValidationError as error:
        path, what, fix = describe_wrong_type(obj, error)
        raise InputError(what, f"{obj['kind']}: {format_path(path)}", fix) from error


class SpreadAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The whole explanation; no field is removed or changes its meaning under the same `SPREAD_SCHEMA`.

    Attributes:
        kind: the object that was explained: ``VirtualMachineInstance`` where there is one, else ``VirtualMachine``.
        mode: mode of the namespace: ``enforce``, ``warn``, ``audit`` or ``off``.
        code: of the reason; ``settings-unreadable`` where the installed settings decide it and are not known.
        injected: what kubevirt-webhook writes into the pods, or would write where the mode only observes.
        present: what the VM's owner wrote, or an earlier injection.
        at_next_start: of a running VM, the answer for its template, if that is another one; None: it is not.
    """

    schema: str
    namespace: str
    name: str
    kind: str
    mode: str
    code: str
    reason: str
    injected: list[dict[str, Any]]
    present: list[dict[str, Any]]
    at_next_start: SpreadAnswer | None = None

    @property
    def constraints(self) -> list[dict[str, Any]]:
        """Those of its pods, also where a mode that only observes does not write them."""
        return self.present or self.injected

    @property
    def is_spread(self) -> bool:
        """Whether the pods get constraints, from the owner or from this server."""
        return bool(self.present) or (bool(self.injected) and self.mode == names.ENFORCE)


async def explain_spread(namespace: str, name: str, settings: Settings, facts: Facts) -> SpreadAnswer:
    """Explain it, by the rules of `spread.pods`: of a running VM for its VMI, and for its template if that differs.

    Raises:
        InputError: there is no such VM.
        Unreadable: something that it depends on cannot be read.
    """
    vm, vmi = await _find(namespace, name, facts)
    present = [await _spread_of(each, namespace, name, settings, facts) for each in (vmi, vm) if each]
    if not present:
        raise InputError(f"VirtualMachine {namespace}/{name} does not exist", fix="check the name and the namespace")
    answer, following = present[0], present[-1]
    differs = following.constraints != answer.constraints
    return msgspec.structs.replace(answer, at_next_start=following) if differs else answer


async def _spread_of(
    vm_or_vmi: VirtualMachine | VirtualMachineInstance, namespace: str, name: str, settings: Settings, facts: Facts
) -> SpreadAnswer:
    own = _spread_annotation(vm_or_vmi)
    scheduling = settings.of(SchedulingSettings)
    excluded, is_everywhere = settings.every_excluded_namespace, scheduling.cluster_wide
    where = await scope.of_namespace(names.SCHEDULING, "enforce", namespace, facts, is_everywhere, excluded)
    if isinstance(where, Unavailable):
        where = scope.Scope(names.OFF, reason=common.namespace_unreadable(namespace, where.why))
    if where.reason is None:
        # What the next launcher pods require of nodes, as far as KubeVirt's configuration, and the VMI or VM say.
        required: Requirements = spread.EVERY_VM
        configuration = await read_configuration(facts) or DEFAULTS
        if isinstance(vm_or_vmi, VirtualMachineInstance):
            vmi = await facts.get(ObjectKey(PLACED_VMIS, namespace, name))
        else:
            whole = await facts.get(ObjectKey(UNSTRUCTURED_VMS, namespace, name))
            vmi = _vmi_of_template(whole) if isinstance(whole, Unstructured) else None
        if isinstance(vmi, Vmi):
            required = target_pod_requirements(vmi, configuration=configuration)
        zoned = partial(spread.has_zones, facts, tuple(each for each in required if not isinstance(each, Elsewhere)))
        decision = await spread.launchers_of(
            vm_or_vmi, scheduling.with_annotations(where.annotations), zoned, annotation=own
        )
        code, reason = decision.code, decision.reasons[0].text
    else:
        decision, code, reason = None, where.reason.code, where.reason.text
    value = decision.notes.get("spread") if decision else None
    holder = vm_or_vmi.template if isinstance(vm_or_vmi, VirtualMachine) else vm_or_vmi
    spec = holder.spec if holder else None
    present: list[dict[str, Any]] = msgspec.to_builtins((spec.topology_spread_constraints if spec else None) or [])
    injected = spread.constraints(value) if isinstance(value, str) else []
    # The installed settings count last, and neither the owner nor the namespace has said anything.
    unknown = by_settings(names.SCHEDULING, where.reason)
    if where.reason is None and not own and not where.annotations.get(names.SPREAD_ANNOTATION):
        unknown = common.by_settings
    if settings.gap and unknown and not present:
        code, reason, injected = unknown.code, unknown.text, []
    return SpreadAnswer(
        schema=SPREAD_SCHEMA,
        namespace=namespace,
        name=name,
        kind="VirtualMachine" if isinstance(vm_or_vmi, VirtualMachine) else "VirtualMachineInstance",
        mode=where.mode,
        code=code,
        reason=reason,
        injected=injected,
        present=[{key: value for key, value in each.items() if value is not None} for each in present],
    )


def _vmi_of_template(vm: Unstructured) -> Vmi | None:
    """The VMI as a VM's template has it, without what KubeVirt fills in; None where there is none to be read."""
    spec = ((vm.spec or {}).get("template") or {}).get("spec")
    try:
        return msgspec.convert({"spec": spec}, Vmi) if spec else None
    except msgspec.ValidationError:
        return None


async def _find(namespace: str, name: str, facts: Facts) -> tuple[VirtualMachine | None, VirtualMachineInstance | None]:
    await facts.prefetch(ObjectKey(VMIS, namespace, name), ObjectKey(_VMS, namespace, name))
    vm = await read(facts, ObjectKey(_VMS, namespace, name), f"VirtualMachine {namespace}/{name}")
    return vm, await read(facts, ObjectKey(VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")


def _spread_annotation(vm_or_vmi: VirtualMachine | VirtualMachineInstance) -> object:
    """The owner's annotation, where pods inherit it."""
    if isinstance(vm_or_vmi, VirtualMachineInstance):
        return vm_or_vmi.meta.annotation(names.SPREAD_ANNOTATION)
    metadata = vm_or_vmi.template.metadata if vm_or_vmi.template else None
    return metadata.annotation(names.SPREAD_ANNOTATION) if metadata else None


class StandInUuids:
    """Stand-ins for the random UUIDs of a machine: different ones, but the same in every run.

    Args:
        machine: the VM or VMI, plain JSON.
    """

    def __init__(self, machine: Json) -> None:
        self._name: Final = f"{machine['metadata']['namespace']}/{machine['metadata']['name']}"
        self.made: list[str] = []

    def next(self) -> str:
        """Another one."""
        self.made.append(str(uuid5(_UUIDS, f"{self._name}/{len(self.made)}")))
        return self.made[-1]


class Leaf(NamedTuple):
    """A leaf of an object as plain JSON, be it an empty object; KubeVirt makes another value of a stand-in."""

    path: str
    value: Any
    origin: FieldOrigin
    stand_in: bool


def leaves_of(created: Created, shown: Mapping[str, Any], stand_ins: Collection[str]) -> Iterator[Leaf]:
    """All leaves of an object in order, as it may be shown; ``stand_ins`` are values that stand for random ones."""
    for path, value in leaves(shown):
        # Where a secret hides more than a leaf, all of it came from the same place.
        hidden = (each for own, each in created.origins.items() if own.startswith(path))
        origin = created.origins.get(path) or next(hidden, FieldOrigin.VM)
        yield Leaf(path, value, origin, isinstance(value, str) and value in stand_ins)


class Sources(NamedTuple):
    """Where an explanation reads the cluster: as in the server, and each object once as it is now."""

    cluster: Cluster
    once: Cluster


async def explain_vm(sources: Sources, settings: Settings, namespace: str, name: str, deadline: float) -> VmExplanation:
    """What the policies do to a VM in its life, and where the values of its VMI come from.

    Look-ups end at the deadline, which is on the running loop's clock, in seconds.

    Raises:
        InputError: the VM does not exist.
        Unreadable: something that it depends on cannot be read.
    """
    return await _VmExplainer(sources, settings, namespace, name, deadline).explain()


class _VmExplainer:
    """One explanation of a VM."""

    def __init__(self, sources: Sources, settings: Settings, namespace: str, name: str, deadline: float) -> None:
        self._sources: Final = sources
        self._settings: Final = settings
        self._place: Final = (namespace, name)
        self._deadline: Final = deadline
        self._gaps: Final[list[str]] = []
        unknown = ("what policies add to its pods by the installed settings",) if settings.gap else ()
        self._additions: Final = additions_by(settings, unknown)
        around = WithHeadroom(sources.cluster, sources.once)
        self._create: Final = partial(create, around, settings, deadline)

    async def explain(self) -> VmExplanation:
        vm, running = await self._read("VirtualMachine"), await self._read("VirtualMachineInstance")
        placed = self._placed(running)
        node = placed.node_name if placed else ""
        present = vm or running
        if present is None:
            what = f"VirtualMachine {'/'.join(self._place)} does not exist"
            raise InputError(what, fix="check the name and the namespace")
        patched, report = await self._create(present, by_owner=True)
        # What exists has been changed already, or was created before the policies were.
        base = present if (present["metadata"].get("uid") and vm) else patched
        reports, denial, created, owned = [report], "", None, base
        configuration = await self._configuration()
        uuids = StandInUuids(base)
        try:
            if base["kind"] == "VirtualMachineInstance":
                created = _storable(creation.from_vmi(base, uuids.next, configuration))
            else:
                lookups = BlockingLookups({}, self._sources.once)
                sent = await lookups.run(lambda get: creation.sent_for_vm(base, get, uuids.next, configuration))
                owned = sent.obj
                # The policies are called before KubeVirt's own webhook has set anything.
                changed, report = await self._create(owned)
                reports.append(report)
                created = _storable(sent.stored(changed, uuids.next, configuration))
        except CreationDenied as denied:
            denial = denied.what
        except UnreadableObjectError as error:
            self._gaps.append(f"the VMI that KubeVirt makes of it, and its pods: {error.where} {error.what}")
        vmi, pod, start = None, None, None
        smaller: tuple[str, ...] = ()
        if created:
            uid = str((running or {}).get("metadata", {}).get("uid") or _UID)
            vmi = {**created.obj, "metadata": {**created.obj["metadata"], "uid": uid}}
            starting = self._start(vmi, base, exists=running is not None)
            start = await self._readable("the nodes on which it could start", starting)
            launcher = pod_of(vmi, start.requests, start.selector) if start else pod_of(vmi)
            pod, report = await self._create(launcher, vmi=vmi)
            reports.append(report)
            if start and _codes_of([report]).intersection(_DENIED_FOR_ROOM):
                smaller = await self._readable("whether a smaller one could start", self._smaller(pod)) or ()
        migration = None
        if node:
            migration = await self._readable("where it could migrate to", self._migration())
        pods = await self._pods(running) if running else ()
        if placed and node:
            reports += await self._when_running(placed, _pod_of(pods, node), configuration, migration)
        # One that waits for a node has been given its defaults, too.
        given = _pod_of(pods, node) or next(reversed(pods), None)
        defaults = (
            await self._readable("which defaults it has", self._defaults(owned, running, given, vmi, pod))
            if vmi
            else None
        )
        waiting = await self._readable("why it waits", self._waiting(vm, running, placed))
        knows_scheduler = self._knows_scheduler(reports)
        return VmExplanation(
            schema=VM_SCHEMA,
            namespace=self._place[0],
            name=self._place[1],
            kind="VirtualMachine" if vm else "VirtualMachineInstance",
            running_on=node,
            scheduler=pod["spec"]["schedulerName"] if pod and knows_scheduler else "",
            requests=tuple(reports),
            denial=denial,
            named=tuple(_named_reports(created, base)) if created else (),
            fields=tuple(_field_reports(created, vmi, base, uuids)) if created and vmi else (),
            nodes=Nodes.of(start.eligibility) if start else None,
            migration=migration,
            gaps=(*self._gaps, *(start.gaps if start else ())),
            reasons=reasons_of(start.eligibility) if start else (),
            notes=(*start.notes, *_headroom_notes(reports, start.requests), *smaller) if start else (),
            until_restarted=tuple(_until_restarted(running, vmi)) if running and vmi and vm else (),
            obstacles=start.obstacles if start else (),
            waiting=waiting or "",
            defaults=defaults or (),
            warnings=tuple(misplaced.warnings(present, "VM" if vm else "VMI")),
            settings_gap=self._settings.gap,
        )

    def _knows_scheduler(self, reports: Iterable[RequestReport]) -> bool:
        """Whether it is known which scheduler the next pod gets; where it is not, that is a gap."""
        of_pod = [each for each in reports if each.kind == "Pod"]
        own = [each for report in of_pod for each in report.policies if each.policy == names.SCHEDULING]
        unknown = [each for report in of_pod for each in report.unknown_schedulers]
        if unknown and any(each.mode == names.ENFORCE for each in own):
            otherwise = "which its next pods get while it is; they get default-scheduler while it is not"
            self._gaps.extend(f"whether scheduler {each} is available, {otherwise}" for each in unknown)
            return False
        if not self._settings.gap:
            return True
        # Settings that are not known may switch the policy on in all namespaces.
        if own and not any(is_uncertain(each.reasons) for each in own):
            return True
        self._gaps.append("the scheduler of its next pods: the installed settings")
        return False

    async def _configuration(self) -> ClusterConfig:
        """KubeVirt's configuration; its defaults where this user may not read it, which is a gap."""
        try:
            configuration, _ = await configuration_of({}, self._sources.once)
        except InputError as error:
            if error.where != KUBEVIRTS.kind:
                raise
            self._gaps.append(f"KubeVirt's configuration, so its defaults apply: it {error.what}")
            return DEFAULTS
        return configuration

    async def _readable(self, what: str, answer: Awaitable[T]) -> T | None:
        """A part of the answer; None where something of it cannot be read, which is a gap."""
        try:
            return await answer
        except Unreadable as error:
            self._gaps.append(f"{what}: {error.why}")
            return None

    async def _read(self, kind: str) -> Json | None:
        # KubeVirt writes a VM's generation into its VMI.
        resource = STORED_VMS if kind == "VirtualMachine" else UNSTRUCTURED_VMIS
        obj = await self._sources.once.read(ObjectKey(resource, *self._place), self._deadline)
        if isinstance(obj, Unavailable):
            raise Unreadable(f"{kind} {'/'.join(self._place)} cannot be read: {obj.why}")
        if obj is None:
            return None
        assert isinstance(obj, Unstructured)
        plain = obj.plain()
        metadata = {key: value for key, value in plain["metadata"].items() if value is not None}
        metadata.pop("resourceVersion", None)
        return {**plain, "kind": kind, "apiVersion": plain["apiVersion"] or "kubevirt.io/v1", "metadata": metadata}

    async def _when_running(
        self, placed: Vmi, pod: LauncherPod | None, configuration: ClusterConfig, to: MigrationExplanation | None
    ) -> list[RequestReport]:
        """What the policies do with a migration, with evictions of the pod that it runs in, and when that must go."""
        namespace, name = self._place
        _, migration = await self._create(migration_of(namespace, name), by_owner=True)
        reports = [migration]
        if pod is None:
            return reports
        requester = next(iter(self._settings.of(EvictionSettings).requesters), "")
        if requester:
            eviction = eviction_of(namespace, pod.meta.name or "", requester)
            _, report = await self._create(eviction, by_owner=True)
            reports.append(report)
        eviction = eviction_of(namespace, pod.meta.name or "")
        around = self._sources.cluster, self._settings, self._deadline
        effect = _effect_of_drain(eviction_effect(placed, configuration.eviction_strategy), to)
        reports.append(await drain(*around, eviction, pod.node_name, effect=effect))
        if users := self._settings.of(PreemptionSettings).taint_controllers:
            tainted = tainted_away(pod, namespace, time.time())
            reports.append(await remove(self._sources.cluster, self._settings, self._deadline, tainted, by=users[0]))
        return reports

    async def _defaults(
        self, owned: Json, running: Json | None, current: LauncherPod | None, vmi: Json, pod: Json | None
    ) -> tuple[DefaultReport, ...]:
        """The defaults of the VM, whose VMI its owner has so: ``owned``. Its next start makes ``vmi`` and ``pod``."""
        place = await self._sources.once.read(NamespaceKey(self._place[0]), self._deadline)
        if isinstance(place, Unavailable):
            raise Unreadable(place.why)
        annotations = (place.meta.annotations if place else None) or {}
        section = self._settings.of(DefaultsSettings).with_annotations(annotations)
        given: dict[str, str] = {}
        if running:
            present = (current.meta.annotations if current else None) or {}
            given = {**present, **(running["metadata"].get("annotations") or {})}
            if current:
                given = still_in_force(given, msgspec.to_builtins({"spec": current.spec}))
        following = (pod or vmi)["metadata"].get("annotations") or {}
        once = self._sources.once
        facts = Facts(peek=once.peek)
        has_opted_out = defaults_opted_out(_view(owned, Unstructured))
        unread: dict[tuple[str, ...], str] = {}
        if not has_opted_out:
            unread = await drive(unread_of(section, facts), once, facts, self._deadline, "explain vm")
            if self._settings.gap:
                mode = place.meta.label(names.policy_label(DEFAULTS_POLICY)) if place else None
                unread |= dict.fromkeys(of_settings(section, mode), "the installed settings")
        return tuple(defaults_of(owned, given, following, section, unread))

    async def _pods(self, running: Json) -> tuple[LauncherPod, ...]:
        key = ListKey(LAUNCHER_PODS, self._place[0], f"{CREATED_BY}={running['metadata'].get('uid', '')}")
        pods = await self._sources.once.read(key, self._deadline)
        return () if isinstance(pods, Unavailable) else pods or ()

    def _placed(self, running: Json | None) -> Vmi | None:
        """The VMI that exists, as placements read it; None: there is none, or it cannot be read, which is a gap."""
        try:
            return None if running is None else _view(running, Vmi)
        except InputError as error:
            self._gaps.append(f"the VMI that exists: {error.what}")
            return None

    async def _smaller(self, pod: Json) -> tuple[str, ...]:
        """What headroom, which denies the start of a launcher pod, would let start instead, clauses."""
        once = self._sources.once
        facts = Facts(peek=once.peek)
        reading = read(facts, HeadroomKey(), "the cluster's headroom")
        room = await drive(reading, once, facts, self._deadline, "explain vm")
        placed = placed_in(_view(pod, RunningPod), self._place[0])
        found = [*smaller_starts(room, placed)] if room and placed else []
        if found:
            margin = "its pod may request a little more than is known before it exists"
            return (f"headroom would let it start now if its pod requested {' or '.join(found)}; {margin}",)
        return ("no smaller amount of memory or of CPU was found with which it would start now",)

    async def _waiting(self, vm: Json | None, running: Json | None, placed: Vmi | None) -> str:
        if vm and not running:
            return condition_of(vm, "Failure")
        if not running or not placed:
            return ""
        scheduler = (running.get("spec") or {}).get("schedulerName") or _DEFAULT_SCHEDULER
        why = waiting_for(placed, await self._pods(running), str(scheduler))
        if why and vm and condition_of(vm, "RestartRequired"):
            fix = "stop the VM and start it for the present one"
            return f"{why.rstrip('.')}; its VMI was created of an earlier template: {fix}"
        return why

    async def _migration(self) -> MigrationExplanation | None:
        once = self._sources.once
        facts = Facts(peek=once.peek, additions=self._additions)
        try:
            explanation = explain_migration(Question(*self._place, {}), facts)
            return await drive(explanation, once, facts, self._deadline, "explain vm")
        except InputError:
            return None  # it has ended meanwhile

    async def _start(self, vmi: Json, base: Json, *, exists: bool) -> _Start:
        """Where the VMI could start.

        Args:
            vmi: the VMI, as it will be created.
            base: the VM, or the VMI where no VM stands behind it.
            exists: whether the VM has a VMI now.
        """
        once = self._sources.once
        view = msgspec.convert({**vmi, "status": {}}, Vmi)
        facts = Facts(time.time(), once.peek, additions=self._additions)
        start = _start_of(view, self._place[0], _claims_made_by(base), exists, facts)
        return await drive(start, once, facts, self._deadline, "explain vm")


def _storable(created: Created) -> Created:
    """What KubeVirt creates, which starts.

    Raises:
        CreationDenied: nothing gives it memory, or the API server would not store it: a template's labels are not
            looked at before.
    """
    for error in check_metadata(created.obj, namespaced=True):
        raise CreationDenied(creation.CreationStage.API_SERVER, error.text)
    return creation.require_memory(created)


def _effect_of_drain(effect: EvictionEffect, to: MigrationExplanation | None) -> str:
    """What KubeVirt does with the eviction, a clause; ``to`` is where the VM could migrate to, None: not known."""
    if effect != EvictionEffect.MIGRATES or (to and to.eligible.count):
        return str(effect.value)
    if to is None:
        return f"{effect.value} if another node can take it, which was not evaluated"
    return "KubeVirt cannot migrate the VM: no node is eligible, and the drain waits"


class _Start(NamedTuple):
    """Where a VM could start.

    Attributes:
        eligibility: which nodes it could start on.
        gaps: what is not known, clauses.
        notes: what may keep it from one of the nodes, clauses.
        obstacles: why its pod is not created, clauses.
        requests: what its pod requests at least, in kube-scheduler's unit by resource.
        selector: the labels of nodes that its pod requires one by one.
    """

    eligibility: Eligibility
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    obstacles: tuple[str, ...]
    requests: Mapping[str, int]
    selector: Mapping[str, str]


async def _start_of(vmi: Vmi, namespace: str, made: Mapping[str, NewClaim], exists: bool, facts: Facts) -> _Start:
    await facts.prefetch(NodesKey(), KubeVirtKey(), NamespaceKey(namespace), *admission_keys(namespace))
    nodes = await read(facts, NodesKey(), "the nodes") or NodeIndex()
    configuration = await read_configuration(facts) or DEFAULTS
    vmi, frequency = with_frequency(vmi, nodes, configuration)
    requested = target_pod_demand(vmi, None, None, configuration, nodes.reports)
    of_networks, unknown = await devices_of_networks(vmi, namespace, facts)
    requests = {name: requested.requests.get(name, 0) + count for name, count in of_networks.items()}
    requests = {**requested.requests, **requests}
    labels, tolerations, gaps = await migration_targets.runtime_class(configuration, facts)
    additions = await facts.additions(vmi, None, namespace, facts)
    by_drivers = await migration_targets.provided_by_drivers(requests, facts)
    required = target_pod_requirements(
        vmi,
        configuration=configuration,
        requests={name: amount for name, amount in requests.items() if name not in by_drivers},
        admitted=labels,
        tolerations=tolerations,
        additions=additions,
    )
    volumes = await review_volumes_of_starting(vmi, namespace, facts, made)
    scheduled = nodes.review((*required, *volumes.own))
    eligibility = nodes.review((*required, *volumes.own, *volumes.attached)) if volumes.attached else scheduled
    by_kubelet = vmi.cpu.decided_by_kubelet
    notes = [f"the VM has {each}, so the kubelet decides by NUMA node whether it fits" for each in by_kubelet]
    eligible = (node for name in eligibility.names() if (node := nodes.get(name)))
    notes += [*frequency, *eligibility_notes(vmi, eligible, now=facts.now)]
    if strays := scheduled.count - eligibility.count:
        notes.append(
            f"kube-scheduler does not regard hotpluggable volumes: it may choose {pluralize(strays, 'more node')} that"
            " cannot attach them, and the VM then waits without end"
        )
    notes += await notes_of_group(additions.next.group, vmi, namespace, eligibility, facts)
    admission = await review_admission(vmi, namespace, requests, configuration, facts, exists=exists)
    place = await facts.get(NamespaceKey(namespace))
    gaps += [*requested.gaps, *by_drivers.values(), *unknown, *volumes.gaps, *_unevaluated(place), *admission.gaps]
    gaps += additions.gaps
    if vmi.domain.devices and vmi.domain.devices.claims_devices:
        gaps.append("devices that the VM claims by ResourceClaims")
    # What policies add, they add to the pod.
    own = target_pod_requirements(vmi, configuration=configuration)
    labels_of_pod = [each.expression for each in own if isinstance(each, Label) and each.expression.operator == IN]
    selector = {each.key: each.values[0] for each in labels_of_pod if len(each.values) == 1}
    kvm = {KVM_DEVICE: 1} if configuration.needs_kvm and nodes.reports(KVM_DEVICE) else {}
    return _Start(eligibility, tuple(gaps), tuple(notes), admission.obstacles, requests | kvm, selector)


# The decisions of the headroom policy that depend on what the pod requests.
_JUDGED: Final = (headroom.KEPT, headroom.NO_PLACE, headroom.NO_ROOM, headroom.NO_MIGRATION)


# Those of them that a VM with smaller requests may not get.
_DENIED_FOR_ROOM: Final = (headroom.NO_PLACE, headroom.NO_ROOM)


def _codes_of(reports: Iterable[RequestReport]) -> set[str]:
    return {reason.code for each in reports for policy in each.policies for reason in policy.reasons}


def _until_restarted(running: Json, following: Json) -> Iterator[str]:
    """Which group a running VMI is in, and with it the pods of its migrations, if the next one is in another."""
    now, then = ((each["metadata"].get("labels") or {}).get(GROUP_LABEL) for each in (running, following))
    if now != then:
        named = [quote(str(each)) if each else "none" for each in (now, then)]
        yield f"its group is {named[0]} until it restarts, and {named[1]} from then on"


def _headroom_notes(reports: Iterable[RequestReport], requests: Mapping[str, int]) -> Iterator[str]:
    """By what the headroom policy judged a start, a clause; none where it did not."""
    if _codes_of(reports).intersection(_JUDGED):
        amounts = [f"{format_amount(name, requests[name])} of {name}" for name in (CPU, MEMORY) if name in requests]
        yield f"headroom is judged by what its pod requests at least, {' and '.join(amounts)}, with the pods of now"


def _unevaluated(place: Namespace | Unavailable | None) -> Iterator[str]:
    """What of the namespace counts for a pod that has not been made yet, clauses."""
    if isinstance(place, Namespace) and place.meta.annotation(NODE_SELECTOR_ANNOTATION):
        yield f"the namespace's {NODE_SELECTOR_ANNOTATION}, which counts where the API server has PodNodeSelector"


def _claims_made_by(vm: Json) -> dict[str, NewClaim]:
    """The claims that KubeVirt and CDI make from the ``dataVolumeTemplates`` of a VM, by name."""
    made = {}
    for template in vm["spec"].get("dataVolumeTemplates") or ():
        spec = template.get("spec") or {}
        of_claim = spec.get("storage") or spec.get("pvc") or {}
        name = (template.get("metadata") or {}).get("name")
        if isinstance(name, str):
            made[name] = NewClaim(str(of_claim.get("storageClassName") or ""))
    return made


def _named_reports(created: Created, base: Json) -> Iterator[NamedReport]:
    annotations = _annotations(base)
    for origin, named in created.named.items():
        injected = annotations.get(INJECTED_ANNOTATIONS[origin.value]) == f"{named.kind}/{named.name}"
        yield NamedReport(origin.value, named.kind, named.name, named.volume, injected)


def _field_reports(created: Created, vmi: Json, base: Json, uuids: StandInUuids) -> Iterator[FieldReport]:
    """The values of the VMI; what a policy has added counts as kubevirt-webhook's, as do its annotations."""
    shown = redact(vmi)
    ours = _annotated_paths(vmi, base)
    for field in leaves_of(created, shown, frozenset(uuids.made)):
        if field.path in ("apiVersion", "kind", "metadata.uid"):
            continue
        named = created.named.get(field.origin)
        if field.path.startswith(ours) or field.path not in created.origins:
            yield FieldReport(field.path, field.value, "kubevirt-webhook")
        else:
            is_vmis = base["kind"] == "VirtualMachineInstance" and field.origin.value == "vm"
            label = "vmi" if is_vmis else field.origin.value
            yield FieldReport(field.path, field.value, label, named.name if named else "", field.stand_in)


def _pod_of(pods: Iterable[LauncherPod], node: str) -> LauncherPod | None:
    """The pod that a VM on a node runs in; while it migrates, it has one on another node, too."""
    present = (each for each in pods if each.node_name == node)
    return max(present, key=lambda each: each.meta.creation_timestamp or "", default=None)


def _annotated_paths(vmi: Json, base: Json) -> tuple[str, ...]:
    """The paths of values that annotations of kubevirt-webhook call its own."""
    annotations = {**_annotations(base), **_annotations(vmi)}
    scheduler = annotations.get(names.INJECTED_SCHEDULER_ANNOTATION)
    named = [path for key, path in WRITTEN_INTO_VMS.items() if key in annotations]
    if scheduler is not None and scheduler != (vmi["spec"].get("schedulerName") or ""):
        # It is the owner's since.
        named.remove(WRITTEN_INTO_VMS[names.INJECTED_SCHEDULER_ANNOTATION])
    return (f"metadata.annotations[{names.DOMAIN}/injected-", *named)


def _annotations(obj: Json) -> dict[str, str]:
    template = (obj["spec"].get("template") or {}).get("metadata") or {}
    return {**(obj["metadata"].get("annotations") or {}), **(template.get("annotations") or {})}
