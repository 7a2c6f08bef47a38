"""The ways to have VMs placed well: who names the scheduler, and who places which pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from hack.diagrams.svg import document, path, rectangle, text, width_of

_WIDTH: Final = 860
_HEIGHT: Final = 186
_COLUMNS: Final = (16, 240, 568)
_WIDTHS: Final = (184, 288, 276)
_ROWS: Final = (18, 104)
_BOX: Final = 62


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        title: what the picture shows.
        rows: for VMs and for other pods: what is placed, and by which scheduler, each a name and what is said of it.
        nodes: what is said of the nodes.
    """

    title: str
    rows: Sequence[tuple[tuple[str, str], tuple[str, str]]]
    nodes: str = ""


def _second(root: Path) -> Way:
    component = root / "manifests" / "scheduler" / "second"
    (deployment,) = yaml.safe_load_all((component / "deployment.yaml").read_text())
    election = _configuration(component / "configuration.yaml")["leaderElection"]
    lease = f"{election['resourceNamespace']}/{election['resourceName']}"
    return Way(
        "A second scheduler places VMs; the cluster's own places all other pods",
        [
            (_LAUNCHERS, (f"{deployment['metadata']['name']}, {deployment['spec']['replicas']} replicas", lease)),
            (_OTHERS, _CLUSTERS),
        ],
        "two queues for the same nodes",
    )


def _openshift(root: Path) -> Way:
    (written,) = yaml.safe_load_all((root / "manifests/scheduler/openshift/secondaryscheduler.yaml").read_text())
    return Way(
        "The scheduler of OpenShift's operator places VMs; the cluster's own places all other pods",
        [
            (_LAUNCHERS, ("secondary-scheduler", f"{written['kind']} {written['metadata']['name']}")),
            (_OTHERS, _CLUSTERS),
        ],
        "two queues for the same nodes",
    )


def _cluster(_: Path) -> Way:
    one = "the cluster's own, one queue"
    return Way(
        "The cluster's own scheduler places VMs by a further profile",
        [
            (_LAUNCHERS, ("profile kubevirt", one)),
            (_OTHERS, ("profile default-scheduler", one)),
        ],
    )


def _policies(_: Path) -> Way:
    return Way(
        "The API server names the scheduler of VMIs by admission policies, and any of the schedulers places them",
        [
            (("new VMIs", "scheduler by a policy"), ("a scheduler that you run", "in any of the ways")),
            (_OTHERS, _CLUSTERS),
        ],
    )


def _images(_: Path) -> Way:
    one = ("the cluster's kube-scheduler", "ImageLocality: equal on all nodes")
    return Way(
        "All nodes list all their images, so that the cluster's own scheduler prefers none of them",
        [(("launcher pods", "without a scheduler"), one), (_OTHERS, one)],
        "nodeStatusMaxImages: -1",
    )


_LAUNCHERS: Final = ("launcher pods", "scheduler by the webhook")
_OTHERS: Final = ("other pods", "without a scheduler")
_CLUSTERS: Final = ("the cluster's kube-scheduler", "kube-system/kube-scheduler")
_WAYS: Final[dict[str, Callable[[Path], Way]]] = {
    "second": _second,
    "openshift": _openshift,
    "cluster": _cluster,
    "policies": _policies,
    "images": _images,
}


def _configuration(file: Path) -> Any:
    (written,) = yaml.safe_load_all(file.read_text())
    return yaml.safe_load(written["data"]["config.yaml"])


def _draw(way: Way) -> str:
    parts = []
    nodes_middle = (_ROWS[0] + _ROWS[-1] + _BOX) / 2
    for y, (pods, scheduler) in zip(_ROWS, way.rows, strict=True):
        middle = y + _BOX / 2
        css = "accent" if y == _ROWS[0] else "box"
        for x, width, (name, more) in zip(_COLUMNS, _WIDTHS, (pods, scheduler), strict=False):
            parts += [rectangle(x, y, width, _BOX, css), *_words(x, y, width, name, more)]
        parts.append(path(f"M{_COLUMNS[0] + _WIDTHS[0]} {middle:g}H{_COLUMNS[1]}"))
        start, end = _COLUMNS[1] + _WIDTHS[1], _COLUMNS[2]
        parts.append(path(f"M{start} {middle:g}H{(start + end) / 2:g}V{nodes_middle:g}H{end}"))
    x, width = _COLUMNS[2], _WIDTHS[2]
    parts.append(rectangle(x, _ROWS[0], width, _ROWS[-1] + _BOX - _ROWS[0]))
    parts += _words(x, nodes_middle - _BOX / 2, width, "nodes", way.nodes)
    return document(_WIDTH, _HEIGHT, way.title, parts)


def _words(x: float, y: float, width: float, name: str, more: str) -> list[str]:
    assert max(width_of(name), width_of(more, 11)) < width - 8, f"{name}, {more}: too long for its box"
    return [text(x + 12, y + 27, name), text(x + 12, y + 47, more, size=11, css="quiet")]


def pictures() -> dict[str, Callable[[Path], str]]:
    """What draws each picture, by the name of its file."""

    def drawing(way: Callable[[Path], Way]) -> Callable[[Path], str]:
        return lambda root: _draw(way(root))

    return {f"way-{name}.svg": drawing(way) for name, way in _WAYS.items()}
