"""`kubevirt-webhook expand`: the VMI that KubeVirt would create for a VM, without KubeVirt."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from webhook import names
from webhook.admission.redaction import redact
from webhook.cli import defaults, inputs, namespaces, write
from webhook.cli.console import console
from webhook.cli.inputs import kubevirt_version, parse_release
from webhook.cli.near import question
from webhook.cli.options import SHOW_SECRETS, VALIDATION, InputPath, Source, output_option, source_option
from webhook.cli.schemas import fetch_definitions, find_schemas
from webhook.cli.write import dump
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import SECONDS, read_once
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import ListKey
from webhook.forecast.validation import Schemas
from webhook.forecast.vm import BlockingLookups, StandInUuids, configuration_of, leaves_of
from webhook.k8s.documents import Document
from webhook.k8s.json_tree import member
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.go_json.origins import FieldOrigin, children, leaves
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.resources import PRESETS
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied, CreationStage
from webhook.kubevirt.vm.size import matching_presets
from webhook.text import pluralize, visible

_INPUT: Final = InputPath(allow_dash=True)
_FILES: Final = "File with VMs; - for stdin."
_MODE: Final = "Print the VMI of the VM, or the VM itself."
_WITHOUT_DEFAULTS: Final = (
    "This is without the defaults of kubevirt-webhook in its namespace; with them:"
    " kubevirt-webhook review FILE --show-secrets -o yaml | kubevirt-webhook expand -f -"
)
_WOULD: Final = {
    CreationStage.VM_WEBHOOK: "KubeVirt's webhook would deny {}:",
    CreationStage.CONTROLLER: "KubeVirt would accept {} but not start it:",
    CreationStage.VMI_WEBHOOK: "KubeVirt would deny {}:",
    CreationStage.EXPANSION: "KubeVirt would not expand {}:",
}
# Added fields come first; users know those that they set.
_STYLES: Final = {
    FieldOrigin.INSTANCETYPE: "green",
    FieldOrigin.PREFERENCE: "cyan",
    FieldOrigin.CLUSTER: "yellow",
    FieldOrigin.KUBEVIRT: "magenta",
    FieldOrigin.VM: "dim",
}
# The headline shows them.
_IN_HEADLINE: Final = frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace"})
_LONGEST: Final = 72
_STAND_IN: Final = "random in KubeVirt; here derived from the name"
_PLAIN: Final = re.compile(r"[\w./:@+<-][^\"\n]*")
_AMBIGUOUS: Final = re.compile(r"true|false|null|[-+]?[\d.]+([eE][-+]?\d+)?|.*\s")
# What says which rules apply.
_OF_CLUSTER: Final = ("KubeVirt", DEFINITIONS.kind)
# KubeVirt's own bookkeeping, one row for each unless another origin set a part of it.
_BOOKKEEPING: Final = ("status", "metadata.ownerReferences", "metadata.finalizers")


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", type=_INPUT, help=_FILES)
@source_option("none; only the files are read")
@kubevirt_version
@VALIDATION
@click.option("--mode", type=click.Choice(["reference", "expand"]), default="reference", show_default=True, help=_MODE)
@click.option("--explain", is_flag=True, help="Show the origin of each field; as a table, unless -o is used.")
@output_option("yaml", "json", passes_default=False)
@SHOW_SECRETS
def expand(
    *,
    files: tuple[str, ...],
    source: Source,
    kubevirt_version: str | None,
    crds: Path | None,
    no_validate: bool,
    mode: str,
    explain: bool,
    output: str | None,
    show_secrets: bool,
) -> None:
    """Print the VMI that KubeVirt would create for a VM, with its instancetype and preference applied.

    This is KubeVirt alone. To see what kubevirt-webhook adds before, pipe the output of `kubevirt-webhook review FILE
    --show-secrets -o yaml` into this command.

    The files may also contain instancetypes, preferences, volumes and the KubeVirt object. A VMI is printed with
    KubeVirt's defaults. VirtualMachineInstancePresets are not applied, but those that select the VMI are named.

    Mode "reference" prints what a VM gets when it starts; mode "expand" prints the VM itself, like `virtctl expand`.
    Objects of KubeVirt are first checked as `kubevirt-webhook review` checks them. With --no-validate, fields that the
    API server drops are named.

    Where KubeVirt generates random UUIDs, this command derives them from the name. Exit status 1 if the API server or
    KubeVirt would deny an object, 2 on invalid input.
    """
    documents = inputs.documents(files, inputs.standard_input() if "-" in files else None)
    release = parse_release(kubevirt_version)
    # Without a cluster, none is looked for.
    namespace = namespaces.namespace_of(source) if any(source) else "default"
    request = _Request(documents, files, namespace, mode, release, source, crds, no_validate, show_secrets)
    expansion = asyncio.run(_expand(request))
    explanations, denials = expansion.explanations, expansion.denials
    if not explain and (hidden := next((each for each in explanations if each.hides_secrets), None)):
        # A placeholder must not reach a cluster, whatever the output is piped into.
        what = "the output would hold placeholders instead of secrets, and must not be applied"
        raise InputError(what, hidden.where, "use --show-secrets to print the secrets, or --explain to read the fields")
    if explain and output is None:
        out = console()
        for index, explanation in enumerate(explanations):
            if index:
                out.print()
            explanation.print(out)
    elif explanations:
        shown = [each.as_json() if explain else each.shown for each in explanations]
        write.data(json.dumps(shown if shown[1:] else shown[0], indent=2) if output == "json" else dump(shown))
    for error in expansion.errors:
        write.error(error)
    for line in expansion.checks if expansion.errors else ():
        write.line(line, err=True)
    if expansion.origin:
        defaults.say_what_applies(expansion.origin, namespace, of=defaults.OF_UNNAMED)
    for preset in expansion.presets:
        write.error(visible(preset))
    for denial in denials:
        _print_denial(denial)
    if denials or expansion.invalid:
        raise SystemExit(1)


def _sorted(valid: list[Document], request: _Request) -> inputs.GivenObjects:
    """The objects of valid documents; an `InputError` where no VM or VMI is among them, and no document is invalid."""
    objects = inputs.objects(valid, request.namespace)
    if not objects.machines and len(valid) == len(request.documents):
        named = [*objects.skipped, *sorted({kind for kind, _, _ in objects.others})]
        kinds = " and ".join(f"{each} of another API group" if each in inputs.MACHINES else each for each in named)
        what = f"found no VirtualMachine of {names.KUBEVIRT_GROUP}, only {kinds}" if kinds else "holds no objects"
        fix = "add a VirtualMachine; for a pool or replica set, use its template"
        raise InputError(what, ", ".join(request.files), fix)
    inputs.say_skipped(objects.skipped)
    return objects


class _Denial(NamedTuple):
    """A machine that KubeVirt would not make, and the document that it is from."""

    where: str
    machine: Json
    denied: CreationDenied
    hint: str


async def _hint(denied: CreationDenied, vm: Json, objects: inputs.GivenObjects, cluster: Cluster | None) -> str:
    """What to do about an object that the VM names and that does not exist; empty for other denials."""
    is_missing = denied.what.endswith(" not found")
    if not is_missing and "unexpected kind" not in denied.what:
        return ""
    deadline = asyncio.get_running_loop().time() + SECONDS
    near = await question(vm, vm["metadata"]["namespace"], cluster, deadline, objects.others)
    if near or cluster or not is_missing:
        return near
    return "The files do not contain it; add it, or use --cluster-from DIR or --kubeconfig FILE."


def _print_denial(denial: _Denial) -> None:
    """Print that KubeVirt would not make a machine, and why."""
    where, machine, denied, hint = denial
    metadata = machine["metadata"]
    title = f"{machine['kind']} {metadata['namespace']}/{metadata['name']}"
    lines = [f"{where}: {_WOULD[denied.stage].format(title)}"]
    # The webhook's message is its causes in a row, the first ten of them.
    joined = denied.stage is CreationStage.VM_WEBHOOK and denied.causes
    if not joined:
        lines.append(f"  {denied.what}")
    causes = denied.causes if joined or len(denied.causes) > 1 else ()
    lines += [f"  - {each.what}" + ("" if each.field in each.what else f" ({each.field})") for each in causes]
    if joined and denied.what.endswith(" more validation errors"):
        lines.append(f"  - {denied.what.rpartition(', ')[2]}")
    if hint:
        lines.append(f"  {hint}")
    if denied.stage is CreationStage.VMI_WEBHOOK and machine["kind"] == "VirtualMachine":
        lines.append(f"  {_WITHOUT_DEFAULTS}")
    spec = machine.get("spec") or {}
    infers = any((spec.get(field) or {}).get("inferFromVolume") for field in ("instancetype", "preference"))
    if denied.stage is CreationStage.EXPANSION and infers:
        lines.append("  KubeVirt infers nothing in this mode; use --mode reference.")
    for line in lines:
        write.error(visible(line))


@dataclass(slots=True)
class _Expansion:
    """What comes of the objects in some files.

    Attributes:
        explanations: of the machines that KubeVirt would make.
        denials: the machines that it would not make.
        errors: what is wrong with objects, lines.
        checks: what the objects were checked against, sentences.
        presets: what is not applied, lines.
        invalid: how many objects the API server would deny.
        origin: where the settings come from, which can name KubeVirt's release, a clause; empty without a cluster.
    """

    explanations: list[Explanation] = field(default_factory=list)
    denials: list[_Denial] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    presets: list[str] = field(default_factory=list)
    invalid: int = 0
    origin: str = ""


class _Request(NamedTuple):
    """What is to be expanded, and how; ``namespace`` is that of objects that name none."""

    documents: list[Document]
    files: tuple[str, ...]
    namespace: str
    mode: str
    release: Release | None
    source: Source
    crds: Path | None
    no_validate: bool
    show_secrets: bool


async def _expand(request: _Request) -> _Expansion:
    """What KubeVirt would make of each machine."""
    source = request.source
    async with source.open() if any(source) else nullcontext() as cluster:
        if isinstance(cluster, FilesCluster):
            inputs.say_skipped(cluster.skipped)
        result, release = _Expansion(), request.release
        if cluster:
            applied = await defaults.settings_beside(cluster, None, source)
            result.origin = applied.origin
            release = release or parse_release(applied.settings.kubevirt.version or None, "kubevirt.version")
        of_cluster = [each for each in request.documents if each.value.get("kind") in _OF_CLUSTER]
        others = inputs.objects(of_cluster, request.namespace).others
        configuration, settings = await configuration_of(others, cluster, release)
        schemas = await _schemas(request, of_cluster, configuration.rules.release, cluster)
        valid = _valid(request, schemas, result)
        objects = _sorted(valid, request)
        lookups = BlockingLookups(objects.others, cluster)
        for machine in objects.machines:
            uuids, where = StandInUuids(machine.value), machine.where()
            if request.mode == "reference":
                result.presets += [f"{where}: {each}" async for each in _presets(machine.value, objects, cluster)]
            try:
                created = await lookups.run(_question(machine.value, request.mode, uuids, configuration))
            except CreationDenied as denied:
                hint = await _hint(denied, machine.value, objects, cluster)
                result.denials.append(_Denial(where, machine.value, denied, hint))
            except InputError as error:
                raise InputError(error.what, f"{where}: {error.where}" if error.where else where, error.fix) from None
            else:
                shown = created.obj if request.show_secrets else redact(created.obj)
                result.explanations.append(Explanation(created, shown, where, settings, frozenset(uuids.made)))
        result.invalid = len(request.documents) - len(valid)
        return result


async def _presets(machine: Json, objects: inputs.GivenObjects, cluster: Cluster | None) -> AsyncIterator[str]:
    """What is not applied to the VMI of a machine, though KubeVirt does it when the VMI is created; clauses."""
    namespace, found = machine["metadata"]["namespace"], dict[str, Json]()
    if cluster:
        read = await read_once(cluster, ListKey(PRESETS, namespace))
        if isinstance(read, Unavailable):
            yield f"{PRESETS.kind}s are not applied, and whether one selects the VMI is not known: {read.why}"
        else:
            found = {each.meta.name or "": each.plain() for each in read or ()}
    kind = PRESETS.kind
    found |= {name: obj for (of, place, name), obj in objects.others.items() if (of, place) == (kind, namespace)}
    is_vmi = machine["kind"] == "VirtualMachineInstance"
    metadata = member(machine, "metadata" if is_vmi else "spec.template.metadata")
    for preset in matching_presets(found.values(), metadata):
        yield f"not applied: {kind} {namespace}/{preset['metadata']['name']}, which selects the VMI by its labels"


async def _schemas(request: _Request, given: list[Document], release: Release, cluster: Cluster | None) -> Schemas:
    """What the objects are checked against: the definitions in the files, else those of the cluster."""
    definitions = [each.value for each in given if each.value["kind"] == DEFINITIONS.kind]
    origin = "the CustomResourceDefinitions in the files"
    if not definitions and isinstance(cluster, FilesCluster):
        definitions = cluster.objects(DEFINITIONS.kind)
        origin = f"the CustomResourceDefinitions in {request.source.cluster_from}"
    elif not definitions and cluster and not request.crds and not request.release:
        async with inputs.connected(request.source.kubeconfig) as transport:
            definitions = await fetch_definitions(transport)
        origin = "the cluster's CustomResourceDefinitions"
    return find_schemas(release, request.crds, () if request.release else definitions, origin)


def _valid(request: _Request, schemas: Schemas, result: _Expansion) -> list[Document]:
    """The documents that the API server takes; what is wrong with the others, or is dropped, goes into the result."""
    valid = []
    for document in request.documents:
        checked = schemas.check(document.value)
        errors = checked.errors if checked else []
        if request.no_validate:
            errors = [each for each in errors if each.dropped]
        if not errors or request.no_validate:
            valid.append(document)
        if not errors or not checked:
            continue
        title, by = _title(document.value, schemas, request.namespace), errors[0].by
        would = "would drop fields of" if request.no_validate else "would deny"
        result.errors.append(visible(f"{document.where()}: {by} {would} {title}:"))
        result.errors += [visible(f"  {document.where(each.path)}: {each.text}") for each in errors]
        result.checks = list(dict.fromkeys([*result.checks, checked.against, *checked.unchecked]))
    return valid


def _title(obj: Json, schemas: Schemas, default: str) -> str:
    """Kind, namespace and name of an object that may be malformed."""
    metadata = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
    name = str((metadata or {}).get("name") or "")
    namespace = f"{(metadata or {}).get('namespace') or default}/" if schemas.is_namespaced(obj) is not False else ""
    return f"{obj['kind']} {namespace}{name}"


def _question(obj: Json, mode: str, uuids: StandInUuids, configuration: ClusterConfig) -> Callable[[Get], Created]:
    if obj["kind"] == "VirtualMachineInstance":
        if mode == "expand":
            raise InputError("a VirtualMachineInstance cannot be expanded", fix="remove --mode expand")
        return lambda _: creation.require_memory(creation.from_vmi(obj, uuids.next, configuration))
    if mode == "expand":
        return lambda get: creation.expand_vm(obj, get, configuration)
    return lambda get: creation.require_memory(creation.from_vm(obj, get, uuids.next, configuration))


@dataclass(frozen=True)
class Explanation:
    """An object that KubeVirt would make, with the origins of its fields.

    Attributes:
        shown: the object as it may be shown, without secrets.
        where: the document that it was made from.
        cluster: where the cluster's settings come from, as a clause.
        stand_ins: values that stand for random ones.
    """

    created: Created
    shown: Mapping[str, Any]
    where: str
    cluster: str
    stand_ins: Collection[str]

    @property
    def hides_secrets(self) -> bool:
        """Whether placeholders stand for secrets in what is shown."""
        return self.shown is not self.created.obj

    @property
    def _own(self) -> str:
        owners = self.created.obj["metadata"].get("ownerReferences", [])
        is_made = any(owner["kind"] == "VirtualMachine" for owner in owners)
        return "vmi" if self.created.obj["kind"] == "VirtualMachineInstance" and not is_made else "vm"

    def as_json(self) -> dict[str, Any]:
        """The object, the objects that were applied to it, and its fields with their origins."""
        result: dict[str, Any] = {
            "source": self.where,
            # A placeholder must not reach a cluster, whatever takes the object out of the report.
            "object": None if self.hides_secrets else self.shown,
            "settings": self.cluster,
        }
        for origin, named in self.created.named.items():
            optional = {"inferredFromVolume": named.volume, "controllerRevision": named.revision}
            details = {key: value for key, value in optional.items() if value}
            result[origin.value] = {"kind": named.kind, "name": named.name, **details}
        fields = result["fields"] = list[dict[str, Any]]()
        for item in leaves_of(self.created, self.shown, self.stand_ins):
            label = self._own if item.origin is FieldOrigin.VM else item.origin.value
            fields.append({"path": item.path, "value": item.value, "origin": label})
            if item.origin in self.created.named:
                fields[-1]["name"] = self.created.named[item.origin].name
            if item.stand_in:
                fields[-1]["random"] = True
        return result

    def print(self, out: Console) -> None:
        """Print the fields as text, a group for each origin; the object's own fields are abbreviated."""
        metadata = self.shown["metadata"]
        title = f"{self.shown['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        out.print(Text.assemble((visible(title), "bold"), (visible(f"  from {self.where}"), "dim")))
        for origin, named in self.created.named.items():
            volume = f", inferred from volume {named.volume}" if named.volume else ""
            revision = f", as stored in ControllerRevision {named.revision}" if named.revision else ""
            out.print(Text(visible(f"  {origin.value:<13} {named.name}, {named.kind}{volume}{revision}")))
        out.print(Text(visible(f"  {'settings':<13} {self.cluster}")))
        items = [*leaves_of(self.created, self.shown, self.stand_ins)]
        for origin, style in _STYLES.items():
            group = [item for item in items if item.origin is origin and item.path not in _IN_HEADLINE]
            if not group:
                continue
            of, count = self.created.named.get(origin), pluralize(len(group), "field")
            label = self._own if origin is FieldOrigin.VM else f"{origin.value} {of.name}" if of else origin.value
            out.print(Text.assemble("\n", (visible(label), f"bold {style}"), (f"  {count}", "dim")))
            own = {item.path: f" ({_STAND_IN})" if item.stand_in else "" for item in group}
            whole = ("",) if origin is FieldOrigin.VM else _BOOKKEEPING if origin is FieldOrigin.KUBEVIRT else ()
            rows = [*_rows(self.shown, own, whole)]
            left = max(len(visible(path)) for path, _ in rows)
            right = max((len(text) for _, text in rows if len(text) <= 24), default=0)
            for path, text in rows:
                line = Text.assemble("  ", f"{visible(path):<{left}}", (" = ", "dim"), f"{text:<{right}}")
                line.append(visible(f"  ← {label}"), style=f"dim {style}")
                out.print(line)


def _rows(value: Any, own: Mapping[str, str], whole: tuple[str, ...], path: str = "") -> Iterator[tuple[str, str]]:
    """The fields that came from one origin: their paths are in ``own``, with a remark on each.

    Below the paths in ``whole``, a value that is all of that origin is one row.
    """
    if not isinstance(value, dict | list) or not value:
        if path in own:
            yield path, f"{_text(value)}{own[path]}"
        return
    below = [leaf for leaf, _ in leaves(value, path)] if path.startswith(whole) and path else []
    if len(below) > 1 and all(leaf in own for leaf in below):
        yield path, f"… {pluralize(len(below), 'field')}"
        return
    for child, item in children(value, path):
        yield from _rows(item, own, whole, child)


def _text(value: Any) -> str:
    """A value as YAML shows it, on one line."""
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and not _AMBIGUOUS.fullmatch(value)
    text = visible(value if plain else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
