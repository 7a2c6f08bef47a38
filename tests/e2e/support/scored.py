"""Nodes with images, and a kube-scheduler that asks for layer scores."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import yaml

from webhook.cli.data import directory

from .kube import Json
from .placing import remove_pods
from .plane import ControlPlane

NODES = ["node-1", "node-2", "node-3"]


def settings(addresses: Sequence[str], port: int, **more: Any) -> Json:
    """Of a server that scores layers, with registries on loopback.

    Args:
        addresses: of the registries.
        port: for kube-scheduler.
        more: further keys of the section ``layers``.
    """
    registry = {"plainHttp": True, "addresses": ["127.0.0.0/8"]}
    layers = {"listen": f"127.0.0.1:{port}", "registries": dict.fromkeys(addresses, registry), **more}
    return {"schedulers": {"kubevirt": {"healthCheck": "off"}}, "layers": layers}


def start_scheduler(plane: ControlPlane, port: int | None, profiles: Sequence[Json] | None = None, **more: Any) -> None:
    """The shipped profile, or others, with the extender where there is a port; ``more`` goes into its section."""
    written = yaml.safe_load((directory("manifests") / "scheduler" / "spread.yaml").read_text())
    written.pop("leaderElection")
    written["profiles"] = profiles or written["profiles"]
    if port is not None:
        extender = yaml.safe_load((directory("manifests") / "scheduler" / "layers.yaml").read_text())["extenders"][0]
        # On a loaded machine an answer may take longer than in a cluster, and then counts for nothing.
        place = {"urlPrefix": f"http://127.0.0.1:{port}/v1/layers", "httpTimeout": "3s"}
        written["extenders"] = [{**extender, **place, **more}]
    plane.start_scheduler("layers", written)


def list_images(plane: ControlPlane, node: str, images: list[Json]) -> None:
    """Have a node list these images."""
    plane.admin.patch("v1/nodes", node, {"status": {"images": images}}, subresource="status")


def clean_up(plane: ControlPlane) -> None:
    """Remove pods, images and the scheduler."""
    remove_pods(plane.admin)
    for name in NODES:
        list_images(plane, name, [])
    # Some tests have none, or have ended it.
    with contextlib.suppress(KeyError):
        plane.stop_scheduler("layers")
