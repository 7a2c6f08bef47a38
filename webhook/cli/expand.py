"""`kubevirt-webhook expand`: the VMI that KubeVirt would create for a VM, without KubeVirt."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from webhook.admission.redaction import redact
from webhook.cli import defaults, inputs, namespaces, write
from webhook.cli.console import console
from webhook.cli.inputs import kubevirt_version, parse_release
from webhook.cli.options import SHOW_SECRETS, InputPath, Source, output_option, source_option
from webhook.cli.write import dump
from webhook.cluster.selection import open_cluster
from webhook.errors import InputError
from webhook.forecast.vm import Search, StandInUuids, configuration_of, leaves_of
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.origins import Origin, children, leaves
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get
from webhook.kubevirt.releases.fields import ineffective_fields
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied, Stage
from webhook.text import pluralize, visible

_INPUT: Final = InputPath(allow_dash=True)
_FILES: Final = "File with VMs; - for stdin."
_MODE: Final = "Print the VMI of the VM, or the VM itself."
_WOULD: Final = {
    Stage.VM_WEBHOOK: "KubeVirt's webhook would deny {}:",
    Stage.CONTROLLER: "KubeVirt would accept {} but not start it:",
    Stage.VMI_WEBHOOK: "KubeVirt would deny {}:",
    Stage.EXPANSION: "KubeVirt would not expand {}:",
}
# Added fields come first; users know those that they set.
_STYLES: Final = {
    Origin.INSTANCETYPE: "green",
    Origin.PREFERENCE: "cyan",
    Origin.CLUSTER: "yellow",
    Origin.KUBEVIRT: "magenta",
    Origin.VM: "dim",
}
# The headline shows them.
_IN_HEADLINE: Final = frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace"})
_LONGEST: Final = 72
_STAND_IN: Final = "random in KubeVirt; here derived from the name"
_PLAIN: Final = re.compile(r"[\w./:@+<-][^\"\n]*")
_AMBIGUOUS: Final = re.compile(r"true|false|null|[-+]?[\d.]+([eE][-+]?\d+)?|.*\s")
# KubeVirt's own bookkeeping, one row for each unless another origin set a part of it.
_BOOKKEEPING: Final = ("status", "metadata.ownerReferences", "metadata.finalizers")


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", type=_INPUT, help=_FILES)
@source_option("none; only the files are read")
@kubevirt_version
@click.option("--mode", type=click.Choice(["reference", "expand"]), default="reference", show_default=True, help=_MODE)
@click.option("--explain", is_flag=True, help="Show the origin of each field; as a table, unless -o is used.")
@output_option("yaml", "json", passes_default=False)
@SHOW_SECRETS
def expand(
    *,
    files: tuple[str, ...],
    source: Source,
    kubevirt_version: str | None,
    mode: str,
    explain: bool,
    output: str | None,
    show_secrets: bool,
) -> None:
    """Print the VMI that KubeVirt would create for a VM, with its instancetype and preference applied.

    This is KubeVirt alone. To see what kubevirt-webhook adds before, pipe the output of `kubevirt-webhook review FILE
    --show-secrets -o yaml` into this command.

    The files may also contain instancetypes, preferences, volumes and the KubeVirt object. A VMI is printed with
    KubeVirt's defaults.

    Mode "reference" prints what a VM gets when it starts; mode "expand" prints the VM itself, like `virtctl expand`.
    Where KubeVirt generates random UUIDs, this command derives them from the name. Exit status 1 if KubeVirt would
    deny the VM, 2 on invalid input.
    """
    # Without a cluster, none is looked for.
    namespace = namespaces.namespace_of(source) if any(source) else "default"
    objects, release = _read(files, namespace), parse_release(kubevirt_version)
    made = asyncio.run(_all(objects, mode, release, source, show_secrets=show_secrets))
    explanations, denials, origin = made
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
    if origin:
        defaults.say_what_applies(origin, namespace, of=defaults.OF_UNNAMED)
    for denial in denials:
        _print_denial(denial, hint=not any(source))
    if denials:
        raise SystemExit(1)


def _read(files: tuple[str, ...], namespace: str) -> inputs.GivenObjects:
    """The objects in the files; an `InputError` where there is no VM or VMI among them."""
    objects = inputs.objects(inputs.documents(files, inputs.standard_input() if "-" in files else None), namespace)
    if not objects.machines:
        kinds = " and ".join(objects.skipped + sorted({kind for kind, _, _ in objects.others}))
        what = f"found no VirtualMachine, only {kinds}" if kinds else "holds no objects"
        fix = "add a VirtualMachine; for a pool or replica set, use its template"
        raise InputError(what, ", ".join(files), fix)
    if objects.skipped:
        write.error(f"skipped kinds that this command does not use: {visible(', '.join(objects.skipped))}")
    return objects


class _Denial(NamedTuple):
    """A machine that KubeVirt would not make, and the document that it is from."""

    where: str
    machine: Json
    denied: CreationDenied


def _print_denial(denial: _Denial, *, hint: bool) -> None:
    """Print that KubeVirt would not make a machine, and why."""
    where, machine, denied = denial
    metadata = machine["metadata"]
    title = f"{machine['kind']} {metadata['namespace']}/{metadata['name']}"
    lines = [f"{where}: {_WOULD[denied.stage].format(title)}"]
    # The webhook's message is its causes in a row, the first ten of them.
    joined = denied.stage is Stage.VM_WEBHOOK and denied.causes
    if not joined:
        lines.append(f"  {denied.what}")
    causes = denied.causes if joined or len(denied.causes) > 1 else ()
    lines += [f"  - {each.what}" + ("" if each.field in each.what else f" ({each.field})") for each in causes]
    if joined and denied.what.endswith(" more validation errors"):
        lines.append(f"  - {denied.what.rpartition(', ')[2]}")
    if hint and denied.what.endswith(" not found"):
        lines.append("  The files do not contain it; add it, or use --cluster-from DIR or --kubeconfig FILE.")
    spec = machine["spec"]
    infers = any((spec.get(field) or {}).get("inferFromVolume") for field in ("instancetype", "preference"))
    if denied.stage is Stage.EXPANSION and infers:
        lines.append("  KubeVirt infers nothing in this mode; use --mode reference.")
    for line in lines:
        write.error(visible(line))


async def _all(
    objects: inputs.GivenObjects,
    mode: str,
    requested: Release | None,
    source: Source,
    *,
    show_secrets: bool,
) -> tuple[list[Explanation], list[_Denial], str]:
    """What KubeVirt would make of each machine, the machines that it would not make, and where settings come from.

    The last is empty without a cluster, whose KubeVirt release they could name.
    """
    origin = ""
    async with open_cluster(*source) if any(source) else nullcontext() as cluster:
        if cluster:
            own, origin = await defaults.settings_beside(cluster, None, source)
            requested = requested or parse_release(own.kubevirt.version or None, "kubevirt.version")
        search = Search(objects.others, cluster)
        configuration, settings = await configuration_of(objects.others, cluster, requested)
        manifests = [(machine.where(), machine.value) for machine in objects.machines]
        manifests += [(f"{kind} {name}", obj) for (kind, _, name), obj in objects.others.items()]
        # What the release does not know of the manifests, the API server would drop.
        release = configuration.rules.release
        for where, obj in manifests:
            for path in ineffective_fields(release.unknown_fields(obj["kind"]), obj.get("spec")):
                write.error(visible(f"{where}: KubeVirt {release} does not know spec.{path}, so it has no effect"))
        explanations, denials = list[Explanation](), list[_Denial]()
        for machine in objects.machines:
            uuids, where = StandInUuids(machine.value), machine.where()
            try:
                created = await search.answer(_question(machine.value, mode, uuids, configuration))
            except CreationDenied as denied:
                denials.append(_Denial(where, machine.value, denied))
            except InputError as error:
                raise InputError(error.what, f"{where}: {error.where}" if error.where else where, error.fix) from None
            else:
                shown = created.obj if show_secrets else redact(created.obj)
                explanations.append(Explanation(created, shown, where, settings, frozenset(uuids.made)))
        return explanations, denials, origin


def _question(obj: Json, mode: str, uuids: StandInUuids, configuration: ClusterConfig) -> Callable[[Get], Created]:
    if obj["kind"] == "VirtualMachineInstance":
        if mode == "expand":
            raise InputError("a VirtualMachineInstance cannot be expanded", fix="remove --mode expand")
        return lambda _: creation.from_vmi(obj, uuids.restart(), configuration)
    if mode == "expand":
        return lambda get: creation.expand_vm(obj, get, configuration)
    return lambda get: creation.from_vm(obj, get, uuids.restart(), configuration)


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
            label = self._own if item.origin is Origin.VM else item.origin.value
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
            label = self._own if origin is Origin.VM else f"{origin.value} {of.name}" if of else origin.value
            out.print(Text.assemble("\n", (visible(label), f"bold {style}"), (f"  {count}", "dim")))
            own = {item.path: f" ({_STAND_IN})" if item.stand_in else "" for item in group}
            whole = ("",) if origin is Origin.VM else _BOOKKEEPING if origin is Origin.KUBEVIRT else ()
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
