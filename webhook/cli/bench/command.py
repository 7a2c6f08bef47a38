"""`kubevirt-webhook bench`: measures what admission costs in a cluster, by dry runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from webhook.admission.credentials import sanitize
from webhook.cli import write
from webhook.cli.bench import samples
from webhook.cli.bench.measure import METRICS_PATH, Limits, Target, measure, running_vmi
from webhook.cli.bench.report import BenchReport, NotMeasured, lines
from webhook.cli.console import print_report
from webhook.cli.inputs import connected
from webhook.cli.options import WholeNumber, kubeconfig_option, namespace_option, output_option
from webhook.cli.prompt import confirm
from webhook.cluster.reader import Reader
from webhook.errors import InputError, Unavailable
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.client.api import ApiConnectionError, Requests, decode, explain
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.resources import NAMESPACES
from webhook.kubevirt.resources import VMIS
from webhook.text import duration, pluralize, visible

if TYPE_CHECKING:
    from webhook.k8s.client.transport import KubernetesTransport

_NOTHING_MEASURED: Final = 1
_MOST: Final = 1000
_FASTEST: Final = 50
_LONGEST: Final = 300
# Of the VMIs of a namespace, among which is one that runs.
_LOOKED_AT: Final = 100
_BASELINE: Final = "Namespace without webhooks, in which the same objects are the baseline.  [default: a ConfigMap]"
_LAUNCHER: Final = (
    "User to impersonate for pods; policies evaluate those of KubeVirt's controller alone, "
    "system:serviceaccount:kubevirt:kubevirt-controller.  [default: the user]"
)


@click.command()
@namespace_option("Namespace of the dry runs, which has opted in.")
@kubeconfig_option()
@namespace_option(_BASELINE, "--baseline-namespace")
@click.option("--launcher-as", metavar="USER", default="", help=_LAUNCHER)
@click.option("--number", type=WholeNumber(1, _MOST), default=100, show_default=True, help="Dry runs of each kind.")
@click.option(
    "--rate", type=WholeNumber(1, _FASTEST), default=20, show_default=True, help="Dry runs in a second, in all."
)
@click.option(
    "--time", "seconds", type=WholeNumber(1, _LONGEST), default=60, show_default=True, help="Seconds at most."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
@output_option("text", "json")
def bench(
    kubeconfig: Kubeconfig | None,
    namespace: str | None,
    baseline_namespace: str | None,
    launcher_as: str,
    number: int,
    rate: int,
    seconds: int,
    yes: bool,
    output: str,
) -> None:
    """Measure what admission costs in your cluster, in all and for each webhook. Nothing is stored.

    Dry runs of new pods, VMs, VMIs and migrations are sent one after the other (dryRun=All), and of a kind that no
    webhook is called for. It says first what it will send, and which permissions that takes. Exit status 1 if nothing
    but the baseline could be measured.
    """
    if not namespace:
        raise InputError("no namespace is given", "bench", "name one whose VMs are evaluated, with -n")
    if namespace == baseline_namespace:
        raise InputError("is the namespace that is measured", "--baseline-namespace", "name another one")

    async def run() -> BenchReport | None:
        async with AsyncExitStack() as ends:
            api = await ends.enter_async_context(connected(kubeconfig))
            pods: Requests = api
            if launcher_as:
                file = kubeconfig.path if kubeconfig else ""
                pods = await ends.enter_async_context(connected(Kubeconfig(file, Impersonation(launcher_as))))
            targets, missing, called = await _targets(api, pods, namespace, baseline_namespace)
            limits = Limits(number, rate, seconds)
            for line in plan(api.cluster, targets, limits, launcher_as):
                write.line(line, err=output == "json")
            if not confirm("Send them?", yes=yes, err=output == "json"):
                return None
            found = await measure(api, api.cluster, targets, limits)
            return msgspec.structs.replace(
                found, not_measured=[*found.not_measured, *missing], baseline_webhooks=called
            )

    report = asyncio.run(run())
    if report is None:
        return
    if output == "json":
        print_report(report, output, lambda _: ())
    else:
        write.line("")
        for line in lines(report):
            write.line(sanitize(line))
    if all(each.baseline or each.p50_ms is None for each in report.requests):
        sys.exit(_NOTHING_MEASURED)


async def _targets(
    api: KubernetesTransport, pods: Requests, namespace: str, baseline_namespace: str | None
) -> tuple[list[Target], list[NotMeasured], list[str]]:
    """What is sent, what is not and why, and the webhooks that are called for the baseline, too."""
    targets, missing = [], []
    called: list[str] = []
    if not baseline_namespace:
        kind, called = await _baseline(api, namespace)
        targets.append(Target(kind, namespace, api, is_baseline=True))
    for where in filter(None, (baseline_namespace, namespace)):
        is_baseline = where == baseline_namespace
        found = await _running_vmi(api, where)
        vmi = found if isinstance(found, samples.RunningVmi) else None
        targets.append(Target(samples.pod(vmi), where, pods, is_baseline))
        targets += [Target(kind, where, api, is_baseline) for kind in (samples.VM, samples.VMI)]
        if isinstance(found, NotMeasured):
            missing.append(found)
        else:
            targets.append(Target(samples.migration(found), where, api, is_baseline))
    return targets, missing, called


async def _baseline(api: KubernetesTransport, namespace: str) -> tuple[samples.SampleKind, list[str]]:
    """The baseline's kind, by the webhook configurations, as far as the user may read them."""
    reader = Reader(api)
    found = await reader.get(NAMESPACES, "", namespace)
    if found is None:
        raise InputError(f"the namespace {visible(namespace)} does not exist", "--namespace", "correct the name")
    labels = {} if isinstance(found, Unavailable) else found.meta.labels or {}
    entries = []
    for resource in CONFIGURATIONS.values():
        listed = await reader.all(resource)
        if not isinstance(listed, Unavailable):
            entries += [entry for configuration in listed for entry in configuration.entries]
    return samples.baseline(entries, namespace, {key: str(value) for key, value in labels.items()})


async def _running_vmi(api: KubernetesTransport, namespace: str) -> samples.RunningVmi | NotMeasured:
    """A VMI that runs, or why no migration can be measured."""
    kind = samples.MIGRATION
    try:
        status, body = await api.get(VMIS.path(namespace), {"limit": f"{_LOOKED_AT}"})
    except ApiConnectionError as error:
        raise InputError(f"the API server does not answer: {error.why}") from error
    if status != 200:
        return NotMeasured(kind, namespace, explain("list", VMIS, namespace, status, body).why)
    listed = decode(body, Any, f"list of {VMIS.plural}")
    if isinstance(listed, Unavailable):
        return NotMeasured(kind, namespace, listed.why)
    if vmi := running_vmi(listed):
        return vmi
    todo = "start a VM in it: KubeVirt takes only migrations of VMIs that run"
    return NotMeasured(kind, namespace, "no VMI is known to run in the namespace", todo)


def plan(cluster: str, targets: Sequence[Target], limits: Limits, launcher_as: str) -> list[str]:
    """What will be sent, and which permissions it takes."""
    # One of each opens a connection, and shows what cannot be measured.
    total = (limits.number + 1) * len(targets)
    where = dict.fromkeys(target.namespace for target in targets)
    text = [
        f"cluster: {visible(cluster)}",
        f"{pluralize(total, 'dry run')} (dryRun=All: nothing is stored), one after the other,",
        f"at most {limits.rate} a second and for at most {duration(limits.seconds)}:",
    ]
    for namespace in where:
        kinds = [
            f"{target.kind.kind}{' (baseline)' if target.is_baseline else ''}"
            for target in targets
            if target.namespace == namespace
        ]
        text.append(
            f"  {limits.number} of each, and a first one, in namespace {visible(namespace)}: {', '.join(kinds)}"
        )
    resources = dict.fromkeys(target.kind.resource for target in targets)
    text += [
        "permissions:",
        f"  create on {', '.join(resources)} in {' and '.join(map(visible, where))}",
        "  list on virtualmachineinstances.kubevirt.io there, to find one whose migration can be tried",
        f"  get on the nonResourceURL {METRICS_PATH}; without it nothing is known of each webhook",
    ]
    if any(target.kind in samples.BASELINES for target in targets):
        text.append(f"  get on namespaces, list on {' and '.join(each.plural for each in CONFIGURATIONS.values())},")
        text.append("  to find a baseline that no webhook is called for")
    if launcher_as:
        text.append(f"  impersonate {visible(launcher_as)}, who creates the pods")
    return text
