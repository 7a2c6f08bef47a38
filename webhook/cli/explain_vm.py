"""`kubevirt-webhook explain vm`: everything that the policies do to a VM, and where the values of its VMI come from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from webhook import names
from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.expand import StandInUuids
from webhook.cli.expand_explain import Explanation
from webhook.cli.given import GivenObjects
from webhook.cli.machine import parse_machine
from webhook.cli.options import CLUSTER_FROM, VM_NAMESPACE, config_option, kubeconfig_option, output_option
from webhook.cli.search import Search, configuration_of
from webhook.cli.vm_requests import Json, VmRequests, eviction_of, migration_of, pod_of
from webhook.cli.vm_text import print_vm
from webhook.cli.yamltext import dump
from webhook.cluster.objects import FileObjects, LiveObjects, Objects
from webhook.cluster.selection import open_cluster, require_single_source
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.k8s.views import Unstructured
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied
from webhook.placement.demand import target_pod_demand
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, Vmi
from webhook.placement.target_pods import target_pod_requirements
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.migration.answer import MigrationExplanation, Nodes
from webhook.policies.migration.explanation import explain as explain_migration
from webhook.review.replay import replay
from webhook.review.vm_explanation import SCHEMA, FieldReport, NamedReport, RequestReport, VmExplanation
from webhook.settings.file import default_settings, load
from webhook.settings.snapshot import Settings

_SECONDS: Final = 30.0
_DENIED: Final = 1
_UNREADABLE: Final = 3
_OURS: Final = "kubevirt-webhook"
_CREATED_BY: Final = "kubevirt.io/created-by"
# Of a VMI that does not exist yet.
_UID: Final = "00000000-0000-0000-0000-000000000000"


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@VM_NAMESPACE
@CLUSTER_FROM
@kubeconfig_option()
@config_option("the built-in defaults")
@output_option("text", "json", "yaml")
def vm(**options: Any) -> None:
    """Show what the policies do to a VM and why, its next scheduler, the origin of each value, and where it can go.

    The policies are run on the requests of the VM's life as if they were sent now; nothing is sent or changed.

    Exit status 0 if the VM is accepted, 1 if a policy or KubeVirt would deny it, 2 on invalid input, or if the VM does
    not exist, 3 if the cluster cannot be read.
    """
    _run(_ExplainVmOptions(**options))


@dataclass(frozen=True)
class _ExplainVmOptions:
    """The options of the command."""

    vm: str
    namespace: str | None
    config_file: Path | None
    cluster_from: Path | None
    kubeconfig: Path | None
    output: str


def _run(options: _ExplainVmOptions) -> None:
    namespace, name = parse_machine(options.vm, options.namespace)
    settings = load(options.config_file) if options.config_file else default_settings()
    require_single_source(options.cluster_from, options.kubeconfig)
    try:
        found = asyncio.run(_explain(namespace, name, settings, options))
    except Unreadable as error:
        write.error(f"Error: {error.why}; check the kubeconfig and its permissions")
        raise SystemExit(_UNREADABLE) from None
    if options.output == "json":
        write.data(json.dumps(redact(msgspec.to_builtins(found)), indent=2))
    elif options.output == "yaml":
        write.data(dump([redact(msgspec.to_builtins(found))]))
    else:
        print_vm(found)
    if found.is_denied:
        raise SystemExit(_DENIED)


class _Sources(NamedTuple):
    """Where everything is read."""

    cluster: Cluster
    once: Cluster
    objects: Objects


@asynccontextmanager
async def _open(options: _ExplainVmOptions, settings: Settings) -> AsyncIterator[_Sources]:
    async with open_cluster(options.cluster_from, options.kubeconfig, settings) as cluster:
        if options.cluster_from:
            from webhook.cluster.files import FilesCluster

            assert isinstance(cluster, FilesCluster)
            yield _Sources(cluster, cluster, FileObjects(cluster))
            return
        from webhook.cluster.once import OnceCluster
        from webhook.k8s.client.transport import connect

        transport = await connect(str(options.kubeconfig) if options.kubeconfig else None)
        try:
            yield _Sources(cluster, OnceCluster(transport), LiveObjects(transport))
        finally:
            await transport.close()


async def _explain(namespace: str, name: str, settings: Settings, options: _ExplainVmOptions) -> VmExplanation:
    async with _open(options, settings) as sources:
        deadline = asyncio.get_running_loop().time() + _SECONDS
        return await _Explaining(sources, settings, namespace, name, deadline).explain()


class _Explaining:
    """One explanation.

    Args:
        sources: where everything is read.
        settings: the settings of the server.
        namespace: the VM's namespace.
        name: the VM's name.
        deadline: on the running loop's clock, in seconds.
    """

    def __init__(self, sources: _Sources, settings: Settings, namespace: str, name: str, deadline: float) -> None:
        self._sources: Final = sources
        self._settings: Final = settings
        self._place: Final = (namespace, name)
        self._deadline: Final = deadline
        self._requests: Final = VmRequests(sources.cluster, settings, deadline)

    async def explain(self) -> VmExplanation:
        """The explanation.

        Raises:
            InputError: the VM does not exist.
            Unreadable: something that it depends on cannot be read.
        """
        vm, running = await self._read("VirtualMachine"), await self._read("VirtualMachineInstance")
        given = vm or running
        if given is None:
            raise InputError(
                f"VirtualMachine {'/'.join(self._place)} does not exist", fix="check the name and the namespace"
            )
        patched, report = await self._requests.create(given, by_owner=True)
        # What exists has been changed already, or was created before the policies were.
        base = given if (given["metadata"].get("uid") and vm) else patched
        reports, denial, created = [report], "", None
        configuration, _ = await configuration_of(GivenObjects(), self._sources.objects)
        uuids = StandInUuids(base)
        try:
            created = await self._create_vmi(base, uuids, configuration)
        except CreationDenied as denied:
            denial = denied.what
        vmi, pod = None, None
        if created:
            vmi = {**created.obj, "metadata": {**created.obj["metadata"], "uid": _uid(running)}}
            if vm:
                vmi, report = await self._requests.create(vmi)
                reports.append(report)
            pod, report = await self._requests.create(pod_of(vmi), vmi=vmi)
            reports.append(report)
        if running and (running.get("status") or {}).get("nodeName"):
            reports += await self._when_running(running)
        migration = await self._migration() if running else None
        return VmExplanation(
            schema=SCHEMA,
            namespace=self._place[0],
            name=self._place[1],
            kind="VirtualMachine" if vm else "VirtualMachineInstance",
            running_on=((running or {}).get("status") or {}).get("nodeName") or "",
            scheduler=pod["spec"]["schedulerName"] if pod else "",
            requests=tuple(reports),
            denial=denial,
            named=tuple(_named_reports(created, base)) if created else (),
            fields=tuple(_fields(created, vmi, base, uuids)) if created and vmi else (),
            nodes=await self._nodes(vmi) if vmi else None,
            migration=migration,
            gaps=(),
        )

    async def _read(self, kind: str) -> Json | None:
        resource = UNSTRUCTURED_VMS if kind == "VirtualMachine" else UNSTRUCTURED_VMIS
        found = await self._sources.once.read(ObjectKey(resource, *self._place), self._deadline)
        if isinstance(found, Unavailable):
            raise Unreadable(f"{kind} {'/'.join(self._place)} cannot be read: {found.why}")
        if found is None:
            return None
        assert isinstance(found, Unstructured)
        plain = found.plain()
        metadata = {key: value for key, value in plain["metadata"].items() if value is not None}
        return {**plain, "kind": kind, "apiVersion": plain["apiVersion"] or "kubevirt.io/v1", "metadata": metadata}

    async def _create_vmi(self, base: Json, uuids: StandInUuids, configuration: ClusterConfig) -> Created:
        search = Search(GivenObjects(), self._sources.objects)
        if base["kind"] == "VirtualMachineInstance":
            return await search.answer(lambda _: creation.from_vmi(base, uuids.restart(), configuration))
        return await search.answer(lambda get: creation.from_vm(base, get, uuids.restart(), configuration))

    async def _when_running(self, running: Json) -> list[RequestReport]:
        """What the policies do with a migration without a selector, and with an eviction by the descheduler."""
        namespace, name = self._place
        _, migration = await self._requests.create(migration_of(namespace, name), by_owner=True)
        reports = [migration]
        key = ListKey(LAUNCHER_PODS, namespace, f"{_CREATED_BY}={running['metadata'].get('uid', '')}")
        pods = await self._sources.once.read(key, self._deadline)
        present = [] if isinstance(pods, Unavailable) else [each for each in pods or () if each.node_name]
        requester = next(iter(self._settings.eviction.requesters), "")
        if present and requester:
            eviction = eviction_of(namespace, present[-1].meta.name or "", requester)
            _, report = await self._requests.create(eviction, by_owner=True)
            reports.append(report)
        return reports

    async def _migration(self) -> MigrationExplanation | None:
        namespace, name = self._place
        once = self._sources.once
        try:
            return await replay(
                lambda facts: explain_migration(namespace, name, {}, facts),
                once,
                Facts(peek=once.peek),
                self._deadline,
                "explain vm",
            )
        except InputError:
            return None  # it has ended meanwhile

    async def _nodes(self, vmi: Json) -> Nodes:
        """Where the VMI could start."""
        once = self._sources.once
        nodes = await once.read(NodesKey(), self._deadline)
        install = await once.read(KubeVirtKey(), self._deadline)
        configuration = install.configuration if isinstance(install, KubeVirtInstall) else install or DEFAULTS
        if isinstance(nodes, Unavailable):
            raise Unreadable(f"the nodes cannot be read: {nodes.why}")
        if isinstance(configuration, Unavailable):
            raise Unreadable(f"KubeVirt's configuration cannot be read: {configuration.why}")
        view = msgspec.convert({**vmi, "status": {}}, Vmi)
        requested = target_pod_demand(view, None, None, configuration)
        required = target_pod_requirements(view, configuration=configuration, requests=requested.requests)
        eligibility = (nodes or NodeIndex()).review(required)
        return Nodes(eligibility.count, eligibility.names())


def _uid(running: Json | None) -> str:
    return str((running or {}).get("metadata", {}).get("uid") or _UID)


def _named_reports(created: Created, base: Json) -> Iterator[NamedReport]:
    for origin, named in created.named.items():
        mark = {
            "instancetype": names.INJECTED_INSTANCETYPE_ANNOTATION,
            "preference": names.INJECTED_PREFERENCE_ANNOTATION,
        }[origin.value]
        injected = _annotations(base).get(mark) == f"{named.kind}/{named.name}"
        yield NamedReport(origin.value, named.kind, named.name, named.volume, injected)


def _fields(created: Created, vmi: Json, base: Json, uuids: StandInUuids) -> Iterator[FieldReport]:
    """The values of the VMI; what a policy has added counts as kubevirt-webhook's, as do its annotations."""
    shown = redact(vmi)
    before = dict(created.origins)
    explanation = Explanation(created, shown, "", "", frozenset(uuids.made))
    ours = _annotated_paths(vmi, base)
    for field in explanation.fields():
        if field.path == "metadata.uid" or field.path in ("apiVersion", "kind"):
            continue
        named = created.named.get(field.origin)
        if field.path.startswith(ours) or field.path not in before:
            yield FieldReport(field.path, field.value, _OURS)
        else:
            origin = base["kind"] == "VirtualMachineInstance" and field.origin.value == "vm"
            label = "vmi" if origin else field.origin.value
            yield FieldReport(field.path, field.value, label, named.name if named else "", field.stand_in)


def _annotated_paths(vmi: Json, base: Json) -> tuple[str, ...]:
    """The paths of values that annotations of kubevirt-webhook call its own."""
    annotations = {**_annotations(base), **_annotations(vmi)}
    paths = [f"metadata.annotations[{names.DOMAIN}/injected-"]
    if annotations.get(names.INJECTED_SCHEDULER_ANNOTATION) == (vmi["spec"].get("schedulerName") or ""):
        paths.append("spec.schedulerName")
    if names.INJECTED_SPREAD_ANNOTATION in annotations:
        paths.append("spec.topologySpreadConstraints")
    return tuple(paths)


def _annotations(obj: Json) -> dict[str, str]:
    template = (obj["spec"].get("template") or {}).get("metadata") or {}
    return {**(obj["metadata"].get("annotations") or {}), **(template.get("annotations") or {})}
