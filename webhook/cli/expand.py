"""`kubevirt-webhook expand`: the VMI that KubeVirt would create for a VM, without KubeVirt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import click

from webhook.admission.redaction import redact
from webhook.cli import given, write
from webhook.cli.expand_explain import Explanation
from webhook.cli.kubevirt_version import kubevirt_version, parse_release
from webhook.cli.options import CLUSTER_FROM, SHOW_SECRETS, kubeconfig_option, output_option
from webhook.cli.search import Search, configuration_of
from webhook.cli.show import console, safe
from webhook.cli.yamltext import dump
from webhook.cluster.selection import objects
from webhook.errors import InputError
from webhook.k8s.yaml_builder import Document
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.conflict import Cause
from webhook.kubevirt.lookup import Get
from webhook.kubevirt.releases.fields import ineffective_fields
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied, Stage

# The namespace of generated UUIDs: KubeVirt's are random, these are the same in every run.
_UUIDS: Final = UUID("b9d2c9a6-2f0a-5d0e-8d5e-0d3c3b0f6b52")
_MORE: Final = " more validation errors"
_WOULD: Final = {
    Stage.VM_WEBHOOK: "KubeVirt's webhook would deny {}:",
    Stage.CONTROLLER: "KubeVirt would accept {} but not start it:",
    Stage.VMI_WEBHOOK: "KubeVirt would deny {}:",
    Stage.EXPANSION: "KubeVirt would not expand {}:",
}


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="File with VMs; - for stdin."
)
@CLUSTER_FROM
@kubeconfig_option("none; only the files are read")
@kubevirt_version
@click.option(
    "--mode",
    type=click.Choice(["reference", "expand"]),
    default="reference",
    show_default=True,
    help="Print the VMI of the VM, or the VM itself.",
)
@click.option("--explain", is_flag=True, help="Show the origin of each field; as a table, unless -o is used.")
@output_option("yaml", "json", passes_default=False)
@SHOW_SECRETS
def expand(**options: Any) -> None:
    """Print the VMI that KubeVirt would create for a VM, with its instancetype and preference applied.

    The files may also contain instancetypes, preferences, volumes and the KubeVirt object. A VMI is printed with
    KubeVirt's defaults.

    Mode "reference" prints what a VM gets when it starts; mode "expand" prints the VM itself, like `virtctl expand`.
    Where KubeVirt generates random UUIDs, this command derives them from the name. Exit status 1 if KubeVirt would
    deny the VM, 2 on invalid input.
    """
    _run(_ExpandOptions(**options))


@dataclass(frozen=True)
class _ExpandOptions:
    """The options of the command."""

    files: tuple[str, ...]
    cluster_from: Path | None
    kubeconfig: Path | None
    kubevirt_version: str | None
    mode: str
    explain: bool
    output: str | None
    show_secrets: bool


def _run(options: _ExpandOptions) -> None:
    found = _read(options.files)
    results = asyncio.run(_all(found, options, parse_release(options.kubevirt_version)))
    explanations = [
        _explain(result, options.show_secrets, to_apply=not options.explain)
        for result in results
        if isinstance(result, _Result)
    ]
    if options.explain and options.output is None:
        out = console()
        for index, explanation in enumerate(explanations):
            if index:
                out.print()
            explanation.print(out)
    else:
        _print([item.as_json() if options.explain else item.shown for item in explanations], options.output)
    denials = [result for result in results if isinstance(result, _WouldDeny)]
    for denial in denials:
        denial.print(hint=not (options.cluster_from or options.kubeconfig))
    if denials:
        raise SystemExit(1)


def _read(files: tuple[str, ...]) -> given.GivenObjects:
    """The objects in the files.

    Raises:
        InputError: there is no VM or VMI among them.
    """
    stdin = given.standard_input() if "-" in files else None
    found = given.objects(given.documents(files, stdin))
    if not found.machines:
        kinds = " and ".join(found.skipped + sorted({kind for kind, _, _ in found.others})) or "no objects"
        fix = "add a VirtualMachine; for a pool or replica set, use its template"
        raise InputError(f"found no VirtualMachine, only {kinds}", ", ".join(files), fix)
    if found.skipped:
        write.error(f"skipped kinds that this command does not use: {safe(', '.join(found.skipped))}")
    return found


@dataclass(frozen=True)
class _Result:
    """A machine that KubeVirt would make."""

    where: str
    created: Created
    settings: str
    stand_ins: frozenset[str]


@dataclass(frozen=True)
class _WouldDeny:
    """One that it would not make."""

    where: str
    machine: Json
    denied: CreationDenied

    def print(self, *, hint: bool) -> None:
        metadata, denied = self.machine["metadata"], self.denied
        title = f"{self.machine['kind']} {metadata['namespace']}/{metadata['name']}"
        lines = [f"{self.where}: {_WOULD[denied.stage].format(title)}"]
        # The webhook's message is its causes in a row, the first ten of them.
        joined = denied.stage is Stage.VM_WEBHOOK and denied.causes
        if not joined:
            lines.append(f"  {denied.what}")
        if joined or len(denied.causes) > 1:
            lines += [f"  - {_with_field(cause)}" for cause in denied.causes]
        if joined and denied.what.endswith(_MORE):
            lines.append(f"  - {denied.what.rpartition(', ')[2]}")
        if hint and denied.what.endswith(" not found"):
            lines.append("  The files do not contain it; add it, or use --cluster-from DIR or --kubeconfig FILE.")
        if denied.stage is Stage.EXPANSION and _infers(self.machine):
            lines.append("  KubeVirt infers nothing in this mode; use --mode reference.")
        for line in lines:
            write.error(safe(line))


def _with_field(cause: Cause) -> str:
    return cause.what if cause.field in cause.what else f"{cause.what} ({cause.field})"


def _infers(vm: Json) -> bool:
    spec = vm["spec"]
    return any((spec.get(field) or {}).get("inferFromVolume") for field in ("instancetype", "preference"))


def _explain(result: _Result, show_secrets: bool, *, to_apply: bool) -> Explanation:
    shown = result.created.obj if show_secrets else redact(result.created.obj)
    if to_apply and shown is not result.created.obj:
        write.line(
            f"{result.where}: secrets are redacted, do not apply this output; use --show-secrets to print them",
            err=True,
        )
    return Explanation(result.created, shown, result.where, result.settings, result.stand_ins)


def _print(shown: list[Any], output: str | None) -> None:
    if output == "json" and shown:
        write.data(json.dumps(shown if len(shown) != 1 else shown[0], indent=2))
    elif shown:
        write.data(dump(shown))


async def _all(
    found: given.GivenObjects, options: _ExpandOptions, release: Release | None
) -> list[_Result | _WouldDeny]:
    async with objects(options.cluster_from, options.kubeconfig) as source:
        search = Search(found, source)
        configuration, settings = await configuration_of(found, source, release)
        _warn_of_ineffective_fields(found, configuration.rules.release)
        results: list[_Result | _WouldDeny] = []
        for machine in found.machines:
            uuids = StandInUuids(machine.value)
            try:
                created = await search.answer(_question(machine, options.mode, uuids, configuration))
            except CreationDenied as denied:
                results.append(_WouldDeny(machine.where(), machine.value, denied))
            except InputError as error:
                where = f"{machine.where()}: {error.where}" if error.where else machine.where()
                raise InputError(error.what, where, error.fix) from None
            else:
                results.append(_Result(machine.where(), created, settings, frozenset(uuids.made)))
        return results


def _warn_of_ineffective_fields(found: given.GivenObjects, release: Release) -> None:
    """Report what the release does not know of the given objects, which the API server would drop."""
    objects = [*((machine.where(), machine.value) for machine in found.machines)]
    objects += [(f"{kind} {name}", obj) for (kind, _, name), obj in found.others.items()]
    for where, obj in objects:
        for path in ineffective_fields(release.unknown_fields(obj["kind"]), obj.get("spec")):
            write.error(safe(f"{where}: KubeVirt {release} does not know spec.{path}, so it has no effect"))


def _question(
    machine: Document, mode: str, uuids: StandInUuids, configuration: ClusterConfig
) -> Callable[[Get], Created]:
    obj = machine.value
    if obj["kind"] == "VirtualMachineInstance":
        if mode == "expand":
            raise InputError("a VirtualMachineInstance cannot be expanded", fix="remove --mode expand")
        return lambda _: creation.from_vmi(obj, uuids.restart(), configuration)
    if mode == "expand":
        return lambda get: creation.expand_vm(obj, get, configuration)
    return lambda get: creation.from_vm(obj, get, uuids.restart(), configuration)


class StandInUuids:
    """Stand-ins for the random UUIDs of a machine: different ones, but the same in every run.

    Args:
        machine: the VM or VMI, plain JSON.

    Attributes:
        made: the stand-ins so far.
    """

    def __init__(self, machine: Json) -> None:
        self._name: Final = f"{machine['metadata']['namespace']}/{machine['metadata']['name']}"
        self.made: list[str] = []

    def restart(self) -> Callable[[], str]:
        """From the first one on."""
        self.made = []
        return self._next

    def _next(self) -> str:
        self.made.append(str(uuid5(_UUIDS, f"{self._name}/{len(self.made)}")))
        return self.made[-1]
