"""A kube-scheduler that runs a configuration which a test tries."""

from __future__ import annotations

from webhook.install.schedulers.lint import LintTarget, lint
from webhook.k8s.yaml_documents import Document

from .kube import Json
from .placing import SPACE, remove_pods
from .plane import ControlPlane
from .workloads import PODS

TRIED = "tried"


def tried(written: Json, code: str, *, is_the_clusters: bool = False) -> Json:
    """A configuration of whose mistakes one is meant."""
    target = LintTarget(is_the_clusters=is_the_clusters)
    assert code in [problem.code for problem in lint(Document(written, "f.yaml", 1), target)]
    return written


def start(plane: ControlPlane, written: Json, name: str = TRIED) -> None:
    """Runs a configuration without its Lease, which these tests do not cover."""
    plane.start_scheduler(name, {key: value for key, value in written.items() if key != "leaderElection"})


def is_untouched(plane: ControlPlane, name: str) -> bool:
    """Whether no scheduler has looked at a pod."""
    pod = plane.admin.get(PODS, name, SPACE)
    return "nodeName" not in pod["spec"] and not pod.get("status", {}).get("conditions")


def end(plane: ControlPlane, *names: str) -> None:
    """End schedulers, by default the one that is tried, and remove all pods."""
    for name in names or (TRIED,):
        plane.stop_scheduler(name)
    remove_pods(plane.admin)
