"""Control planes that tests have to themselves, one after the other: each finds its plane as a new one would be.

An API server takes seconds of a processor to start, and to find and delete what a test left takes a tenth of that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .audited import AuditLog
from .kube import Json, Kube, KubeError, eventually, path
from .objects import CRDS
from .pki import service_account
from .plane import ControlPlane
from .webhook_server import ACCOUNT

OPERATOR = "operator"
# As manifests/scheduler/second names it.
SECOND_SCHEDULER = service_account("kubevirt-scheduler", "kubevirt-scheduler")
NAMESPACES = "v1/namespaces"
# To start another plane takes less.
RESET_SECONDS = 60.0
LARGE = 1_000_000
# No test reads those of another one.
_IGNORED = frozenset({"events", "componentstatuses"})
# The control plane's own, which it renews.
_IDENTITY = "apiserver.kubernetes.io/identity"

_Place = tuple[str, str, str]


class LentPlane(ControlPlane):
    """A control plane that can be brought back to how it started, with a log of requests; built as `ControlPlane`."""

    def __init__(self, directory: Path, binaries: Path, **options: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = AuditLog(directory, ACCOUNT.user, SECOND_SCHEDULER.user, OPERATOR)
        flags: Sequence[str] = options.pop("apiserver_flags", ())
        super().__init__(directory, binaries, apiserver_flags=[*self._log.flags, *flags], **options)
        self._first: dict[_Place, Json] = {}
        self._left: list[_Place] = []
        self._deleted: dict[_Place, str] = {}

    def requests_of(self, user: str) -> AuditLog:
        """The requests from now on of the server's account, of that of the second scheduler, or of ``operator``."""
        return self._log.from_now_on(user)

    def remember(self) -> None:
        """Takes what there is now for that to which `reset` returns."""

        def read() -> dict[_Place, Json]:
            return {place: obj for resource in _resources(self.admin) for place, obj in _objects(self, resource)}

        # The API server begins to serve custom resources a moment after it is ready.
        self._first = eventually(read, what="all objects to be listed")

    def reset(self) -> bool:
        """Ends schedulers and the controller manager, and undoes what was made, changed or deleted, if it can."""
        for name in list(self._schedulers):
            self.stop_scheduler(name, grace=0)
            (self.directory / "logs" / f"kube-scheduler-{name}.log").unlink(missing_ok=True)
        self._manager.kill()
        shutil.rmtree(self.directory / "kubectl-cache", ignore_errors=True)
        if not self.answers or self.has_lost_data:
            return False
        self._deleted.clear()
        try:
            eventually(self._undo, what="the plane to be as it was", timeout=RESET_SECONDS)
        except (AssertionError, KubeError, OSError) as error:
            logging.getLogger(__name__).warning("%s: %s; left: %s", self.directory, error, self._left)
            return False
        return True

    def _undo(self) -> bool:
        """Whether there was nothing left to undo."""
        found: dict[_Place, Json] = {}
        # Nothing in a namespace that is gone can be changed any more, which a large pod needs before it is deleted.
        keep: set[str] = set()
        for resource in _resources(self.admin):
            for place, obj in _objects(self, resource):
                found[place] = obj
                uid = obj["metadata"].get("uid", "")
                if place not in self._first and self._deleted.setdefault(place, uid) == uid:
                    if (resource == NAMESPACES and place[2] in keep) or not self._delete(place, obj):
                        keep.add(place[1])
                elif place not in self._first:
                    # The API server makes it again, and made it for the first time after `remember` had looked.
                    self._first[place] = obj
                elif _written(obj) != _written(self._first[place]):
                    version = obj["metadata"]["resourceVersion"]
                    self.admin.replace(resource, _again(self._first[place], resourceVersion=version))
        for place in self._first.keys() - found.keys():
            self.admin.create(place[0], _again(self._first[place]))
        self._left = sorted(found.keys() ^ self._first.keys())
        return not self._left

    def _delete(self, place: _Place, obj: Json) -> bool:
        """Whether the API server took all of it."""
        resource, namespace, name = place
        with contextlib.suppress(KubeError):  # gone with another, or changed meanwhile: the next round sees it
            if len(json.dumps(obj)) > LARGE:
                # A deletion is first written into a pod, for which etcd may have no room.
                self.admin.patch(resource, name, {"metadata": {"managedFields": [{}], "labels": None}}, namespace)
            if obj["metadata"].get("finalizers") and resource != CRDS:
                self.admin.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
            if "deletionTimestamp" not in obj["metadata"]:
                self.admin.delete(resource, name, namespace, gracePeriodSeconds="0", propagationPolicy="Background")
            if resource == NAMESPACES:  # whose controller does not run
                ended = {**obj, "spec": {"finalizers": []}, "metadata": {"name": name}}
                self.admin.request("PUT", path(resource, None, name, "finalize"), ended)
            return True
        return False


def _resources(kube: Kube) -> Iterator[str]:
    """What can be listed and deleted: first what has a say in admission, which could deny the rest; namespaces last."""
    groups = kube.request("GET", "/apis")["groups"]
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
    found = [
        f"{version}/{resource['name']}"
        for version in versions
        for resource in kube.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")["resources"]
        if {"list", "delete"} <= {*resource["verbs"]} and resource["name"] not in _IGNORED
    ]
    yield from sorted(found, key=lambda resource: (resource == NAMESPACES, "admissionregistration" not in resource))


def _objects(plane: ControlPlane, resource: str) -> Iterator[tuple[_Place, Json]]:
    for obj in plane.admin.list(resource):
        metadata = obj["metadata"]
        if _IDENTITY in metadata.get("labels", {}):
            continue
        yield (resource, metadata.get("namespace", ""), metadata["name"]), obj


def _again(obj: Json, **more: str) -> Json:
    """An object as it was, for one that is another by its UID where it was deleted and made again meanwhile."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", "uid")}
    return {**obj, "metadata": metadata | more}


def _written(obj: Json) -> Json:
    """What a client wrote into an object, not what the API server or a controller keeps there."""
    kept = ("labels", "annotations", "finalizers", "deletionTimestamp")
    metadata = {key: obj["metadata"].get(key) for key in kept}
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}} | {"metadata": metadata}
