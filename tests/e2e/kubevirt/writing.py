"""The ways in which owners write a manifest again after they have changed it."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch

from tests.e2e.support.kube import Json, KubeError, KubeObject
from tests.e2e.support.objects import CONFLICT, obj
from tests.e2e.support.workloads import VMS
from tests.owners import merge_patch

from .place import Place


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
