"""The upstream descheduler beside a real KubeVirt, one look at the nodes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.support.descheduler import ACCOUNT, process
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.rbac import RBAC, grant

from .control_plane import RunningKubeVirt

# As upstream's own manifests have it (kubernetes/base/rbac.yaml), less what this policy does not need.
RULES: Sequence[Json] = (
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes", "namespaces", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
)


class Descheduler:
    """A descheduler with a policy; ``options`` are its feature gates and the like."""

    def __init__(
        self, real: RunningKubeVirt, policy: Json, directory: Path, binary: Path, options: Sequence[str]
    ) -> None:
        self._real = real
        self._rounds = 0
        plane = real.plane
        grant(plane.admin, "descheduler", RULES, subject={"apiGroup": RBAC, "kind": "User", "name": ACCOUNT.user})
        self._process = process(binary, policy, plane.kubeconfig_for(*ACCOUNT), directory, *options)

    def look(self) -> None:
        """Has it look at the nodes once; it ends then, as one does that a CronJob starts.

        A migration begins while the descheduler looks, and has ended when it looks again, as in its usual interval of a
        minute: how fast the machine is decides nothing.
        """
        self._rounds += 1
        with self._real.nodes.holding():
            self._process.start()
            try:
                eventually(lambda: not self._process.running, what=f"round {self._rounds} of the descheduler")
            finally:
                self._process.stop()
        # What it logs at the end of a round.
        assert self._process.log.read_text().count("Number of evictions/requests") == self._rounds
