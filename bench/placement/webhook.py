"""The cases in which kubevirt-webhook writes into the pods: its server, as one runs it beside a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.placement import launcher, profiles
from bench.placement.cases import PlacementCase
from bench.placement.errors import PlacementError
from tests.e2e.support.access import Access
from tests.e2e.support.kube import Json, Kube, KubeError
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.processes import Process, free_port
from webhook import names
from webhook.policies.scheduling.spread import constraints

PROGRAM: Final = (sys.executable, "-m", "webhook")
SETTINGS: Final = Path(__file__).with_name("settings.yaml")
# The namespace's label decides whether the API server calls the webhook at all.
LABELS: Final = {names.policy_label(names.SCHEDULING): names.ENFORCE}
MACHINES: Final = "kubevirt.io/v1/virtualmachineinstances"
_PROBE: Final = "webhook-probe"
# It deletes its webhook configurations at the end, which takes it a moment.
_GRACE_SECONDS: Final = 10.0


@contextmanager
def serving(plane: Access) -> Iterator[None]:
    """Run the server for as long as the context lasts; entered, the API server calls it."""
    prepare(plane.admin)
    with running(plane):
        yield


@contextmanager
def running(
    plane: Access,
    program: Sequence[str] = PROGRAM,
    settings: Path = SETTINGS,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Run the server on a plane that is prepared, as often as one likes; entered, the API server calls it.

    Args:
        program: the command of the server, such as another version's.
        settings: its settings.
        environment: beside this process's own.
    """
    command = [*program, *_arguments(plane, settings)]
    process = Process("kubevirt-webhook", command, plane.directory / "logs" / "kubevirt-webhook.log", environment)
    process.start()
    try:
        probe = plane.kubevirt_controller.create(MACHINES, launcher.machine("probe"), _PROBE)
        # Later than its own readiness: the API server learns of webhooks by a watch.
        process.wait_ready(lambda: _is_called(plane, probe))
        plane.kubevirt_controller.delete(MACHINES, "probe", _PROBE)
        yield process
    finally:
        process.stop(_GRACE_SECONDS)


def prepare(kube: Kube) -> None:
    """Make the object that shows where KubeVirt runs, and the namespace of the probe."""
    kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": {}}
    kube.create("kubevirt.io/v1/kubevirts", kubevirt, "kubevirt")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _PROBE, "labels": LABELS}}
    kube.create("v1/namespaces", namespace)


def metadata(case: PlacementCase) -> dict[str, object]:
    """Labels and annotations of the namespaces of a case."""
    return {"labels": LABELS, "annotations": {names.SPREAD_ANNOTATION: case.spread}}


def owners_scheduler(case: PlacementCase) -> str:
    """The scheduler that the owners of the VMs choose, so that kubevirt-webhook does not; empty for none."""
    return "" if case.profile == profiles.SHIPPED else case.profile


def check_injected(pods: list[dict[str, Any]], case: PlacementCase) -> None:
    """That kubevirt-webhook wrote into each of these pods what the case says, and its annotations.

    Raises:
        PlacementError: it did not.
    """
    chosen = None if owners_scheduler(case) else profiles.SHIPPED
    spread = None if case.spread == names.OFF else case.spread
    wanted = (case.profile, chosen, spread, constraints(spread) if spread else None)
    for pod in pods:
        annotations = pod["metadata"].get("annotations", {})
        found = (
            pod["spec"]["schedulerName"],
            annotations.get(names.INJECTED_SCHEDULER_ANNOTATION),
            annotations.get(names.INJECTED_SPREAD_ANNOTATION),
            pod["spec"].get("topologySpreadConstraints"),
        )
        if found != wanted:
            raise PlacementError(
                f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']} has scheduler, annotations and "
                f"constraints {found}, not {wanted}: kubevirt-webhook did not write them"
            )


def _arguments(plane: Access, settings: Path) -> list[str]:
    port = free_port()
    return [
        "serve",
        *("--kubeconfig", str(plane.kubeconfig_for(*ADMIN))),
        *("--config", str(settings)),
        *("--listen", f"127.0.0.1:{port}"),
        *("--ops-listen", "127.0.0.1:0"),
        *("--url", f"https://localhost:{port}"),
        *("--register", "--register-as", "bench"),
    ]


def _is_called(plane: Access, vmi: Json) -> bool:
    """Whether a launcher pod made now would get its scheduler from the server; found by a dry run."""
    try:
        answer = plane.kubevirt_controller.create("v1/pods", launcher.pod(vmi), _PROBE, dryRun="All")
    except KubeError:
        return False
    return bool(answer["spec"]["schedulerName"] == profiles.SHIPPED)
