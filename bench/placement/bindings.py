"""Where the schedulers bound launcher pods, heard from a watch as it happens."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final

from bench.placement.client import SchedulingClient, SchedulingRequest
from bench.placement.errors import PlacementError

LAUNCHERS: Final = f"/api/v1/pods?labelSelector={urllib.parse.quote('kubevirt.io=virt-launcher')}"


class Bindings:
    """The node of each pod of a list that exists, by its name; the names are unique over all namespaces.

    The API server ends a watch whose reader falls behind, as on a busy machine; all pods are listed then, and watched
    from there. The thread that reads ends with the process.

    Args:
        path: the URL path and query of the list; all launcher pods, unless another is given.
    """

    def __init__(self, client: SchedulingClient, path: str = LAUNCHERS) -> None:
        self._client = client
        self._path = path
        self._nodes: dict[str, str] = {}
        self._failure = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._follow, name="bindings", daemon=True).start()

    def wait(self, names: Iterable[str], timeout_seconds: float) -> dict[str, str]:
        """The node of each of these pods, once all are bound.

        Raises:
            PlacementError: some are not bound in time, or the API server can't be watched.
        """
        wanted = set(names)
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while missing := wanted - self._nodes.keys():
                if self._failure:
                    raise PlacementError(f"launcher pods can't be watched: {self._failure}")
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() > deadline:
                    raise PlacementError(
                        f"{len(missing)} of {len(wanted)} launcher pods were not bound within {timeout_seconds:.0f}s, "
                        f"such as {min(missing)}"
                    )
            return {name: self._nodes[name] for name in wanted}

    def _follow(self) -> None:
        try:
            while True:
                self._list_and_watch()
        except Exception as error:  # noqa: BLE001 - the caller that waits for a pod reports it
            with self._changed:
                self._failure = repr(error)
                self._changed.notify_all()

    def _list_and_watch(self) -> None:
        answer = self._client.send(SchedulingRequest("GET", self._path))
        with self._changed:
            self._nodes = {}
            for pod in answer["items"]:
                self._take("ADDED", pod)
            self._changed.notify_all()
        version = answer["metadata"]["resourceVersion"]
        for event in self._client.lines(f"{self._path}&watch=true&resourceVersion={version}&timeoutSeconds=86400"):
            if event["type"] == "ERROR":  # the version is too old by now
                return
            with self._changed:
                self._take(event["type"], event["object"])
                self._changed.notify_all()

    def _take(self, change: str, pod: dict[str, Any]) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if change == "DELETED":
            self._nodes.pop(name, None)
        elif node:
            self._nodes[name] = node
