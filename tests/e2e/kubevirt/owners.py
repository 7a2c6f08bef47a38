"""What owners do to a VM beside a real KubeVirt: they write it, each in their way, and copy it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonpatch

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import CONFLICT, obj
from tests.e2e.support.workloads import VMS
from tests.owners import merge_patch

from .control_plane import POOL
from .place import Place

_SNAPSHOTS, _RESTORES = (f"snapshot.kubevirt.io/v1beta1/virtualmachine{what}" for what in ("snapshots", "restores"))
_WEB = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}


def manifest(name: str = "web", *, template: Json | None = None, run: str = "Halted", **spec: Any) -> Json:
    """A VM as its owner keeps it in a file; keywords go into its spec, ``template`` into its template's spec."""
    inner: Json = {"domain": {"devices": {}}} | (template or {})
    return obj("VirtualMachine", name, spec={"runStrategy": run, "template": {"spec": inner}, **spec})


def write(place: Place, way: str, after: Json, before: Json | None = None) -> KubeObject:
    """The stored object after an owner has written a manifest, with the warnings for the owner; or the KubeError.

    ``before`` is the manifest that was written last; None: the VM does not exist yet.
    """
    if way == "client-side apply":
        return _apply_client_side(place, after)
    if way == "server-side apply":
        return place.admin.apply(_placed(place, after), fieldManager="flux")
    if before is None:
        return place.make(after)
    name = after["metadata"]["name"]
    if way == "replace":
        return _replace(place, after)
    if way == "JSON patch":
        patch = jsonpatch.make_patch(before, after).patch
        return place.admin.patch(VMS, name, patch, place.namespace, kind="json")
    return place.admin.patch(VMS, name, merge_patch(before or {}, after), place.namespace)


def _replace(place: Place, after: Json) -> KubeObject:
    """virt-controller writes the VM too, so the version that was read may be an old one."""
    while True:
        version = place.get(VMS, after["metadata"]["name"])["metadata"]["resourceVersion"]
        try:
            return place.admin.replace(VMS, _placed(place, after, resourceVersion=version))
        except KubeError as error:
            if error.status != CONFLICT:
                raise


def _placed(place: Place, manifest: Json, **metadata: str) -> Json:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": place.namespace, **metadata}}


def _apply_client_side(place: Place, after: Json) -> KubeObject:
    where = (f"--namespace={place.namespace}", "--filename=-", "--output=json")
    done = place.real.plane.kubectl("apply", *where, stdin=json.dumps(after), check=False)
    # kubectl puts "Warning: " before each warning, on a line of its own.
    said = tuple(line.removeprefix("Warning: ") for line in done.stderr.splitlines() if line.startswith("Warning: "))
    if done.returncode:
        raise KubeError("kubectl apply", done.returncode, done.stderr, {}, said)
    stored = KubeObject(json.loads(done.stdout))
    stored.warnings = said
    return stored


def clone(place: Place, **filters: Any) -> KubeObject:
    """A clone of the VM ``web``, by KubeVirt's own controller."""
    vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine"}
    spec = {"source": {**vm, "name": "web"}, "target": {**vm, "name": "copy"}, **filters}
    place.make(obj("VirtualMachineClone", "copy", spec=spec))
    return eventually(lambda: place.get(VMS, "copy"), what="the clone")


def take_snapshot(place: Place) -> None:
    """Of the VM ``web``, by KubeVirt's own controller."""
    place.make(obj("VirtualMachineSnapshot", "then", spec={"source": _WEB}))
    eventually(lambda: place.get(_SNAPSHOTS, "then").get("status", {}).get("readyToUse"), what="the snapshot")


def restore(place: Place) -> None:
    """Makes the VM ``web``, which does not run, what it was at its snapshot."""
    place.make(obj("VirtualMachineRestore", "back", spec={"target": _WEB, "virtualMachineSnapshotName": "then"}))
    eventually(lambda: place.get(_RESTORES, "back").get("status", {}).get("complete"), what="the restore")


def pool(place: Place, run: str = "Halted", labels: Mapping[str, str] | None = None) -> None:
    """Makes a pool of one VM, ``web-0``, that says nothing but the labels of its template."""
    template = {"metadata": {"labels": {"app": "web", **(labels or {})}}, "spec": {"domain": {"devices": {}}}}
    machine = {"metadata": {"labels": {"app": "web"}}, "spec": {"runStrategy": run, "template": template}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": machine}
    place.make(obj(POOL, "web", place.real.pools.rpartition("/")[0], spec=spec))
    eventually(lambda: place.admin.list(VMS, place.namespace), what="the pool to make its VM")


def change_pool(place: Place) -> KubeObject:
    """The VM of a pool after the pool has overwritten it with another template."""
    changed = {"template": {"spec": {"terminationGracePeriodSeconds": 17}}}
    place.patch(place.real.pools, "web", {"spec": {"virtualMachineTemplate": {"spec": changed}}})

    def updated() -> KubeObject | None:
        vm = place.get(VMS, "web-0")
        return vm if vm["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") == 17 else None

    return eventually(updated, what="the pool to update its VM")
