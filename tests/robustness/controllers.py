"""A real KubeVirt in a cluster in which things break: what a kubelet would keep running, and nodes that go on."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.kubevirt.control_plane import ZONES, RunningKubeVirt
from tests.e2e.kubevirt.nodes import PlayedNodes
from tests.e2e.support.kube import KubeError
from tests.e2e.support.migrations import EAST, WEST
from tests.e2e.support.plane import ControlPlane

CONFIGURATION = {"vmRolloutStrategy": "LiveUpdate", "evictionStrategy": "LiveMigrate"}
_SIDES = {"a": EAST, "b": WEST}


class SteadyNodes(PlayedNodes):
    """They go on when the API server answers nothing."""

    def _look(self, *, beats: bool) -> None:
        with suppress(KubeError, OSError, http.client.HTTPException):
            super()._look(beats=beats)


class Controllers(RunningKubeVirt):
    """virt-api, virt-controller, the controller manager and two schedulers of a plane, in a context."""

    def __init__(self, plane: ControlPlane, binaries: Path) -> None:
        super().__init__(plane, binaries, CONFIGURATION, SteadyNodes)

    def _install(self) -> None:
        super()._install()
        self.plane.start_schedulers()

    def label(self) -> None:
        """The nodes lie in the zones to which migrations are asked for."""
        for name, zone in ZONES.items():
            self.plane.admin.patch("v1/nodes", name, {"metadata": {"labels": _SIDES[zone]}})

    def revive(self) -> None:
        super().revive()
        self.plane.revive()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without all of them, as etcd is restored."""
        self.kill()
        self.plane.kill_controllers()
        try:
            yield
        finally:
            self.revive()
