"""Owners who change a VM after it got defaults: in every way of writing their fields win and the defaults give way.

Random manifests too, one written after the other: the VM is the one that the second makes anew.
``KUBEVIRT_PAIRS=100 make kubevirt`` tries more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

import jsonpatch
import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import CONFLICT, obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import VMS, instancetype, preference, scheduler_of
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of, merge_patch

from .conftest import NewPlace
from .place import DEFAULTS, Place

pytestmark = pytest.mark.kubevirt

INJECTED_SCHEDULER_ANNOTATION = f"{DOMAIN}/injected-scheduler"
SCHEDULER_MARKS = {INJECTED_SCHEDULER_ANNOTATION, f"template {INJECTED_SCHEDULER_ANNOTATION}"}


@pytest.fixture
def own(new_place: NewPlace) -> Place:
    """A namespace whose defaults are its own objects, both named ``own``."""
    kinds = {"instancetype": "VirtualMachineInstancetype/own", "preference": "VirtualMachinePreference/own"}
    place = new_place({f"{DOMAIN}/default-{what}": named for what, named in kinds.items()})
    place.make(instancetype("own", cluster=False))
    place.make(preference("own"))
    return place


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


OTHERS = ["*", f"!{DOMAIN}.*"]


@pytest.mark.parametrize("filters", [{"annotationFilters": OTHERS}, {"template": {"annotationFilters": OTHERS}}])
def test_a_clone_without_some_of_our_marks_gets_them_back(place: Place, filters: Json) -> None:
    write(place, "replace", manifest())

    copied = clone(place, **filters)

    assert scheduler_of(copied) == "kubevirt"
    assert marks_of(copied).keys() >= SCHEDULER_MARKS


def test_a_clone_without_any_of_our_marks_is_known_by_its_scheduler(new_place: NewPlace) -> None:
    """The admin's settings say that only the webhook ever chooses that scheduler."""
    place = new_place(DEFAULTS | {f"{DOMAIN}/scheduler-name": "ours-alone"})
    write(place, "replace", manifest())

    copied = clone(place, annotationFilters=OTHERS, template={"annotationFilters": OTHERS})

    assert scheduler_of(copied) == "ours-alone"
    assert marks_of(copied).keys() >= SCHEDULER_MARKS


def test_a_vm_of_a_preset_has_a_size(place: Place) -> None:
    domain = {"devices": {}, "resources": {"requests": {"memory": "3Gi"}}}
    spec = {"selector": {"matchLabels": {"size": "large"}}, "domain": domain}
    place.make(obj("VirtualMachineInstancePreset", "large", spec=spec))
    sized = manifest(run="Always")
    sized["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}

    def left_alone() -> KubeObject | None:
        found = place.make(copy.deepcopy(sized), dryRun="All")
        return found if place.matchers(found) == [None, None] else None

    eventually(left_alone, what="the preset to be seen")
    write(place, "replace", sized)

    assert place.running()["spec"]["domain"]["resources"]["requests"]["memory"] == "3Gi"


PAIRS = int(os.environ.get("KUBEVIRT_PAIRS", "12"))


@pytest.mark.parametrize("number", range(PAIRS))
@pytest.mark.parametrize("way", WAYS)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(new_place: NewPlace, way: str, number: int) -> None:
    chance = random.Random(number)
    defaults, scope = chance.choice([CLUSTER_WIDE, OF_THE_NAMESPACE]), chance.choice(["unsized", "all"])
    place = new_place(
        {
            f"{DOMAIN}/default-instancetype": defaults[0],
            f"{DOMAIN}/default-preference": defaults[1],
            f"{DOMAIN}/default-preference-scope": scope,
        }
    )
    place.make(instancetype("own", cluster=False, memory={"guest": "2Gi"}))
    place.make(instancetype("placed", cluster=False, scheduler="volcano", memory={"guest": "2Gi"}))
    place.make(preference("own"))
    before, first = None, None
    while first is None:
        # A manifest that KubeVirt denies anyway cannot be the first one.
        before = manifest_of({part: chance.choice(options) for part, options in OPTIONS.items()})
        first = written(place, way, before)
    second = {part: chance.choice(options) for part, options in OPTIONS.items()}

    stored = written(place, way, manifest_of(second), before)
    created = written(place, way, manifest_of(second, "new"))

    assert list(WrittenField(way, manifest_of(second), first, stored, created).surprises()) == [], (before, second)


def written(place: Place, way: str, after: Json, before: Json | None = None) -> KubeObject | None:
    try:
        return write(place, way, after, before)
    except KubeError:
        return None
