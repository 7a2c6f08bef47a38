"""Our server, as anybody runs it beside a cluster: started by its command line, registered for as long as it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.placement import launcher
from bench.placement.cases import OPTED_IN
from tests.e2e.access import Access
from tests.e2e.kube import ApiError, Json
from tests.e2e.pki import ADMIN
from tests.e2e.processes import Process, free_port

_SETTINGS: Final = Path(__file__).with_name("settings.yaml")
_MACHINES: Final = "kubevirt.io/v1/virtualmachineinstances"
# It deletes its webhook configurations at the end, which takes it a moment.
_GRACE: Final = 10.0


@contextmanager
def serving(plane: Access) -> Iterator[None]:
    """Our server, for as long as the context lasts; entered, the API server calls it."""
    process = Process("kubevirt-webhook", _command(plane), plane.directory / "logs" / "kubevirt-webhook.log")
    process.start()
    try:
        probe = plane.kubevirt_controller.create(_MACHINES, launcher.machine("probe"), OPTED_IN.namespace)
        # Later than its own readiness: the API server learns of webhooks by a watch.
        process.wait_ready(lambda: _is_called(plane, probe))
        plane.kubevirt_controller.delete(_MACHINES, "probe", OPTED_IN.namespace)
        yield
    finally:
        process.stop(_GRACE)


def _command(plane: Access) -> list[str]:
    port = free_port()
    return [
        *(sys.executable, "-m", "webhook", "serve"),
        *("--kubeconfig", str(plane.kubeconfig_for(*ADMIN))),
        *("--config", str(_SETTINGS)),
        *("--listen", f"127.0.0.1:{port}"),
        *("--ops-listen", "127.0.0.1:0"),
        *("--url", f"https://localhost:{port}"),
        *("--register", "--register-as", "bench"),
    ]


def _is_called(plane: Access, vmi: Json) -> bool:
    """Whether a launcher pod made now would get its scheduler from us; asked without making one."""
    try:
        answer = plane.kubevirt_controller.create("v1/pods", launcher.pod(vmi), OPTED_IN.namespace, dryRun="All")
    except ApiError:
        return False
    return bool(answer["spec"]["schedulerName"] == OPTED_IN.scheduler)
