"""`kubevirt-webhook expand`: the machine that KubeVirt would make of a VM, without KubeVirt."""

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
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import Created, CreationDenied, Stage
from webhook.releases.fields import ineffective_fields
from webhook.releases.release import Release

# The namespace is for this function of names: KubeVirt's UUIDs are random, ours are the same in every run.
_UUIDS: Final = UUID("b9d2c9a6-2f0a-5d0e-8d5e-0d3c3b0f6b52")
_MORE: Final = " more validation errors"
_WOULD: Final = {
    Stage.VM_WEBHOOK: "KubeVirt's webhook would refuse {}:",
    Stage.CONTROLLER: "KubeVirt would accept {} but not start it:",
    Stage.VMI_WEBHOOK: "KubeVirt would refuse {}:",
    Stage.EXPANSION: "KubeVirt would not expand {}:",
}


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="VMs, - for stdin.")
@click.option("--cluster-from", type=click.Path(path_type=Path), metavar="DIR", help="Find more in YAML files.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Find more in a cluster.")
@kubevirt_version
@click.option("--mode", type=click.Choice(["reference", "expand"]), default="reference", show_default=True)
@click.option("--explain", is_flag=True, help="Tell who set every field, as a table unless -o is given.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="[default: yaml]")
@click.option("--show-secrets", is_flag=True, help="Print objects whole, cloud-init and passwords included.")
def expand(
    files: tuple[str, ...],
    cluster_from: Path | None,
    kubeconfig: Path | None,
    kubevirt_version: str | None,
    mode: str,
    explain: bool,
    output: str | None,
    show_secrets: bool,
) -> None:
    """Print the VMI that KubeVirt would create for a VM, its instancetype and preference applied.

    The files may hold the instancetypes, preferences, volumes and the KubeVirt object, too; without --cluster-from or
    --kubeconfig nothing else is looked at. A VMI is printed with KubeVirt's defaults.

    Mode reference is what a VM gets when it starts; mode expand prints the VM itself, as `virtctl expand` does. UUIDs
    that KubeVirt picks at random are made from the name here. Exit status 1 if KubeVirt would refuse, 2 on bad input.
    """
    stdin = given.standard_input() if "-" in files else None
    found = given.objects(given.documents(files, stdin))
    if not found.machines:
        kinds = " and ".join(found.passed_over + sorted({kind for kind, _, _ in found.others})) or "nothing"
        fix = "give a VM; a pool's or replica set's is its template"
        raise InputError(f"there is no VirtualMachine, but {kinds}", ", ".join(files), fix)
    if found.passed_over:
        write.error(f"passed over, of no use here: {safe(', '.join(found.passed_over))}")
    results = asyncio.run(_all(found, cluster_from, kubeconfig, mode, parse_release(kubevirt_version)))
    table = explain and output is None
    explanations = [
        _explain(result, show_secrets, to_apply=not explain) for result in results if isinstance(result, _Result)
    ]
    if table:
        out = console()
        for index, explanation in enumerate(explanations):
            if index:
                out.print()
            explanation.print(out)
    else:
        _print([item.as_json() if explain else item.shown for item in explanations], output)
    refusals = [result for result in results if isinstance(result, _Refusal)]
    for refusal in refusals:
        refusal.print(hint=not (cluster_from or kubeconfig))
    if refusals:
        raise SystemExit(1)


@dataclass(frozen=True)
class _Result:
    """A machine that KubeVirt would make."""

    where: str
    created: Created
    settings: str
    stand_ins: frozenset[str]


@dataclass(frozen=True)
class _Refusal:
    """One that it would not make."""

    where: str
    machine: Json
    refused: CreationDenied

    def print(self, *, hint: bool) -> None:
        metadata, refused = self.machine["metadata"], self.refused
        title = f"{self.machine['kind']} {metadata['namespace']}/{metadata['name']}"
        lines = [f"{self.where}: {_WOULD[refused.stage].format(title)}"]
        # The webhook's message is its causes in a row, the first ten of them.
        joined = refused.stage is Stage.VM_WEBHOOK and refused.causes
        if not joined:
            lines.append(f"  {refused.what}")
        if joined or len(refused.causes) > 1:
            lines += [f"  - {_with_field(cause)}" for cause in refused.causes]
        if joined and refused.what.endswith(_MORE):
            lines.append(f"  - {refused.what.rpartition(', ')[2]}")
        if hint and refused.what.endswith(" not found"):
            lines.append("  It is in none of the files; add it there, or use --cluster-from or --kubeconfig.")
        if refused.stage is Stage.EXPANSION and _infers(self.machine):
            lines.append("  Nothing is inferred in this mode, as in KubeVirt; --mode reference infers.")
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
        write.line(f"{result.where}: secrets are redacted, so don't apply this; see --show-secrets", err=True)
    return Explanation(result.created, shown, result.where, result.settings, result.stand_ins)


def _print(shown: list[Any], output: str | None) -> None:
    if output == "json" and shown:
        write.data(json.dumps(shown if len(shown) != 1 else shown[0], indent=2))
    elif shown:
        write.data(dump(shown))


async def _all(
    found: given.GivenObjects, cluster_from: Path | None, kubeconfig: Path | None, mode: str, release: Release | None
) -> list[_Result | _Refusal]:
    async with objects(cluster_from, kubeconfig) as source:
        search = Search(found, source)
        configuration, settings = await configuration_of(found, source, release)
        _warn_of_ineffective_fields(found, configuration.rules.release)
        results: list[_Result | _Refusal] = []
        for machine in found.machines:
            uuids = _Uuids(machine.value)
            try:
                created = await search.answer(_question(machine, mode, uuids, configuration))
            except CreationDenied as refused:
                results.append(_Refusal(machine.where(), machine.value, refused))
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
        for path in ineffective_fields(release.rules_version, obj["kind"], obj.get("spec")):
            write.error(safe(f"{where}: KubeVirt {release} does not know spec.{path}, so it has no effect"))


def _question(machine: Document, mode: str, uuids: _Uuids, configuration: ClusterConfig) -> Callable[[Get], Created]:
    obj = machine.value
    if obj["kind"] == "VirtualMachineInstance":
        if mode == "expand":
            raise InputError("a VirtualMachineInstance has nothing to expand", fix="leave out --mode")
        return lambda _: creation.from_vmi(obj, uuids.restart(), configuration)
    if mode == "expand":
        return lambda get: creation.expand_vm(obj, get, configuration)
    return lambda get: creation.from_vm(obj, get, uuids.restart(), configuration)


class _Uuids:
    """Stand-ins for the random UUIDs of a machine: different ones, but the same in every run."""

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
