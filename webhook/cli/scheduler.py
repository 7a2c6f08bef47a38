"""`kubevirt-webhook scheduler`: configurations of kube-scheduler for VMs, checked and printed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from webhook.cli import data, inputs, write
from webhook.cli.options import CommandGroup, InputPath, output_option
from webhook.errors import InputError, quote
from webhook.install.schedulers.lint import LintTarget
from webhook.install.schedulers.lint import lint as find_problems
from webhook.install.schedulers.render import VARIANTS, SchedulerPlace, Variant, configuration, stanza
from webhook.k8s.documents import Document, format_path
from webhook.k8s.yaml_documents import parse_documents, read_documents
from webhook.placement.profiles import KIND, is_configuration
from webhook.text import pluralize

# What help says of options.
_PLUGIN: Final = (
    "Plugin that the scheduler is built with, beside those of Kubernetes and scheduler-plugins; repeatable."
)
_LEASE: Final = "The Lease that the scheduler's flags name, as those of OpenShift's Secondary Scheduler Operator do."
_PROFILE: Final = "The schedulerName of the profile for VMs."
_LAYERS: Final = "Add the scheduler extender for image layers, for example http://127.0.0.1:8446."
_PROMETHEUS: Final = "Source of a load-aware variant's metrics.  [default: metrics-server]"
_COLORS: Final = {"error": "red", "warning": "yellow"}


def _read_lease(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, str]:
    """A Lease that an option names; two empty texts for none."""
    namespace, slash, name = text.partition("/")
    if text and not (namespace and slash and name and "/" not in name):
        raise InputError(f"{quote(text)} is no Lease", "--lease", "use NAMESPACE/NAME")
    return namespace, name


@click.group(cls=CommandGroup)
def scheduler() -> None:
    """Check a kube-scheduler configuration for VMs, or print one."""


@scheduler.command()
@click.argument("file", type=InputPath(allow_dash=True))
@click.option("--profile", metavar="NAME", default="kubevirt", show_default=True, help=_PROFILE)
@click.option("--cluster-scheduler", is_flag=True, help="FILE configures the cluster's own scheduler.")
@click.option("--plugin", "plugins", multiple=True, metavar="NAME", help=_PLUGIN)
@click.option("--lease", metavar="NAMESPACE/NAME", default="", callback=_read_lease, help=_LEASE)
@output_option("text", "json")
def lint(
    file: str, profile: str, cluster_scheduler: bool, plugins: tuple[str, ...], lease: tuple[str, str], output: str
) -> None:
    """Check a KubeSchedulerConfiguration in FILE, or on standard input (-).

    A ConfigMap or Secret that holds one is read, too. Exit status 0 without errors, 1 with errors, 2 on bad input.
    """
    target = LintTarget(profile, cluster_scheduler, plugins, lease)
    documents = list(parse_documents(inputs.standard_input(), "-") if file == "-" else read_documents(file))
    configurations = [inner for document in documents for inner in _unwrap(document) if is_configuration(inner.value)]
    if not configurations:
        raise InputError(f"contains no {KIND}", file, "give the file that kube-scheduler gets with --config")
    problems = [(document, problem) for document in configurations for problem in find_problems(document, target)]
    errors = sum(problem.severity == "error" for _, problem in problems)
    if output == "json":
        values = [{"where": each.where(problem.path), **msgspec.to_builtins(problem)} for each, problem in problems]
        write.data(json.dumps(values, indent=2))
    else:
        for document, problem in problems:
            place = f"{document.where(problem.path)}: " + (f"{format_path(problem.path)}: " if problem.path else "")
            write.line(f"{problem.severity}: {place}{problem.text} [{problem.code}]", color=_COLORS[problem.severity])
            write.line(f"  Consequence: {problem.consequence}.")
            write.line(f"  What to do: {problem.remedy}.")
        write.line(f"{pluralize(errors, 'error')}, {pluralize(len(problems) - errors, 'warning')}")
    if errors:
        raise SystemExit(1)


@scheduler.command()
@click.argument("variant", type=click.Choice(VARIANTS))
@click.option("--cluster-scheduler", is_flag=True, help="Print it for the cluster's own scheduler.")
@click.option("--prometheus", metavar="URL", default="", help=_PROMETHEUS)
@click.option("--layers", metavar="URL", help=_LAYERS)
def render(variant: Variant, cluster_scheduler: bool, prometheus: str, layers: str | None) -> None:
    """Print the KubeSchedulerConfiguration of a VARIANT.

    spread places VMs evenly, pack fills one node after the other. load-aware and load-aware-pack do so by what nodes
    use, rather than by what VMs request; they need a kube-scheduler with the plugins of scheduler-plugins.
    """
    manifests = data.directory("manifests")
    place: SchedulerPlace = "cluster" if cluster_scheduler else "second"
    text = configuration(manifests, variant, place, prometheus)
    if layers:
        text += stanza(manifests, layers)
    write.data(text)


def _unwrap(document: Document) -> Iterator[Document]:
    """The document itself, or what stands in a ConfigMap or a Secret."""
    value: Any = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in ("ConfigMap", "Secret"):
        yield document
        return
    for field in ("data", "stringData"):
        entries = value.get(field)
        for key, held in entries.items() if isinstance(entries, dict) else ():
            text = _decoded(held) if (kind, field) == ("Secret", "data") else held
            if isinstance(text, str) and KIND in text:
                yield from parse_documents(text, f"{document.where()} {key}")


def _decoded(text: Any) -> str:
    """The text of a Secret's value; empty for one that is no text."""
    try:
        return base64.b64decode(str(text), validate=True).decode()
    except ValueError:
        return ""
