"""Owners who change a VM after it got defaults: in every way of writing their fields win and the defaults give way."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import VMS, instancetype, preference, scheduler_of
from tests.owners import DECLARING, PATCHING, WAYS, marks_of

from .conftest import NewPlace
from .place import DEFAULTS, Place
from .writing import manifest, write

pytestmark = pytest.mark.kubevirt

INSTANCETYPES = "instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes"
PREFERENCES = "instancetype.kubevirt.io/v1beta1/virtualmachinepreferences"
CLONES = "clone.kubevirt.io/v1beta1/virtualmachineclones"
OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
INJECTED_SCHEDULER_ANNOTATION = f"{DOMAIN}/injected-scheduler"
SCHEDULER_MARKS = {INJECTED_SCHEDULER_ANNOTATION, f"template {INJECTED_SCHEDULER_ANNOTATION}"}
FOUR: Json = {"domain": {"devices": {}, "memory": {"guest": "4Gi"}}}
every_way = pytest.mark.parametrize("way", WAYS)
as_a_whole = pytest.mark.parametrize("way", DECLARING)


def of_its_own(new_place: NewPlace, name: str) -> Place:
    """A namespace whose defaults are objects of its own."""
    place = new_place(
        {
            f"{DOMAIN}/default-instancetype": f"VirtualMachineInstancetype/{name}",
            f"{DOMAIN}/default-preference": f"VirtualMachinePreference/{name}",
        }
    )
    place.create(INSTANCETYPES, instancetype(name, cluster=False))
    place.create(PREFERENCES, preference(name))
    return place


@pytest.fixture
def own(new_place: NewPlace) -> Place:
    """A namespace whose defaults are its own objects, both named ``own``."""
    return of_its_own(new_place, "own")


def of_defaults(found: Mapping[str, Any]) -> set[str]:
    """The annotations that record injected defaults."""
    return marks_of(found).keys() - SCHEDULER_MARKS


def said(found: KubeObject) -> list[str]:
    """The warnings of kubevirt-webhook."""
    return [warning for warning in found.warnings if warning.startswith("kubevirt-webhook")]


# -- another one than the default -------------------------------------------------------------------------------------


@every_way
def test_a_name_alone_is_a_cluster_wide_instancetype_as_in_kubevirt(own: Place, way: str) -> None:
    write(own, way, first := manifest())

    stored = write(own, way, manifest(instancetype={"name": "u1.medium"}), first)

    assert own.matchers(stored)[0] == {"name": "u1.medium"}
    assert of_defaults(stored) == {f"{DOMAIN}/injected-preference"}


@every_way
def test_a_name_alone_is_a_cluster_wide_preference(own: Place, way: str) -> None:
    write(own, way, first := manifest())

    stored = write(own, way, manifest(preference={"name": "alpine"}), first)

    assert own.matchers(stored) == [OWN, {"name": "alpine"}]
    assert of_defaults(stored) == {f"{DOMAIN}/injected-instancetype"}


@as_a_whole
def test_an_object_of_the_namespace_with_that_name_is_not_taken_for_it(own: Place, way: str) -> None:
    own.create(INSTANCETYPES, instancetype("u1.medium", cluster=False))
    write(own, way, first := manifest())

    stored = write(own, way, manifest(instancetype={"name": "u1.medium"}), first)

    assert own.matchers(stored)[0] == {"name": "u1.medium"}
    assert said(stored) == []


def test_a_patch_that_may_mean_either_is_taken_at_its_word_which_is_said(own: Place) -> None:
    own.create(INSTANCETYPES, instancetype("u1.medium", cluster=False))
    write(own, "replace", manifest())

    stored = own.patch(VMS, "web", {"spec": {"instancetype": {"name": "u1.medium"}}})

    assert own.matchers(stored)[0] == {"kind": "VirtualMachineInstancetype", "name": "u1.medium"}
    (warning,) = said(stored)
    assert "VirtualMachineInstancetype/u1.medium" in warning


@as_a_whole
def test_the_name_of_the_default_without_its_kind_is_another_object(new_place: NewPlace, way: str) -> None:
    place = of_its_own(new_place, "u1.small")
    write(place, way, first := manifest())

    stored = write(place, way, manifest(run="Always", instancetype={"name": "u1.small"}), first)

    assert place.matchers(stored)[0] == {"name": "u1.small"}


@every_way
def test_a_preference_is_inferred_where_the_owner_says_so_now(new_place: NewPlace, way: str) -> None:
    place = of_its_own(new_place, "own")
    place.claim("root", {"default-preference": "alpine"})
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]
    write(place, way, first := manifest(template={"volumes": volumes}))

    changed = manifest(template={"volumes": volumes}, preference={"inferFromVolume": "root"})
    stored = write(place, way, changed, first)

    assert place.matchers(stored) == [OWN, {"name": "alpine"}]


@every_way
def test_a_revision_that_a_restore_pinned_gives_way_with_the_default(own: Place, way: str) -> None:
    write(own, way, first := manifest())
    own.patch(VMS, "web", {"spec": {"instancetype": {"revisionName": "some"}}})

    stored = write(own, way, manifest(instancetype={"name": "u1.medium"}), first)

    assert own.matchers(stored)[0] == {"name": "u1.medium"}


@every_way
def test_what_the_owner_names_can_be_taken_back(own: Place, way: str) -> None:
    write(own, way, first := manifest())
    write(own, way, second := manifest(instancetype={"name": "u1.medium"}), first)

    stored = write(own, way, manifest(), second)

    assert own.matchers(stored)[0] is None
    assert "size" in said(stored)[0]


# -- fields that conflict with an injected default ---------------------------------------------------------------------


@every_way
def test_who_says_a_size_gets_a_vm_of_that_size(place: Place, way: str) -> None:
    write(place, way, first := manifest())

    stored = write(place, way, second := manifest(template=FOUR), first)

    assert place.matchers(stored) == [None, None]
    assert of_defaults(stored) == set()
    assert len(said(stored)) == (0 if way == "replace" else 1)
    again = write(place, way, second, second)
    assert (place.matchers(again), of_defaults(again)) == ([None, None], set())


@every_way
def test_who_names_an_instancetype_that_our_preference_forbids_gets_it(place: Place, way: str) -> None:
    write(place, way, first := manifest())

    stored = write(place, way, manifest(instancetype={"name": "u1.nano"}), first)

    assert place.matchers(stored) == [{"name": "u1.nano"}, None]
    assert of_defaults(stored) == set()
    assert len(said(stored)) == 1


@every_way
def test_no_default_comes_back(place: Place, way: str) -> None:
    write(place, way, first := manifest())
    write(place, way, second := manifest(template=FOUR), first)

    stored = write(place, way, first, second)

    assert place.matchers(stored) == [None, None]
    assert of_defaults(stored) == set()
    assert "size" in said(stored)[0]


def test_what_fits_stays_while_the_owner_changes_other_things(place: Place) -> None:
    write(place, "server-side apply", first := manifest())

    changed = manifest(template={"domain": {"devices": {}}, "terminationGracePeriodSeconds": 5})
    stored = write(place, "server-side apply", changed, first)

    assert [matcher["name"] for matcher in place.matchers(stored)] == ["u1.small", "fedora"]
    assert said(stored) == []


def test_a_running_vm_is_resized_by_its_owners_instancetype(place: Place) -> None:
    write(place, "server-side apply", first := manifest(run="Always"))
    place.running()

    write(place, "server-side apply", manifest(run="Always", instancetype={"name": "u1.medium"}), first)

    def grown() -> bool:
        return bool(place.running()["spec"]["domain"]["memory"]["guest"] == "4Gi")

    eventually(grown, what="virt-controller to plug memory in")


# -- the scheduler -----------------------------------------------------------------------------------------------------


@every_way
def test_our_scheduler_gives_way_to_that_of_an_instancetype(place: Place, way: str) -> None:
    place.create(INSTANCETYPES, instancetype("placed", cluster=False, scheduler="volcano", memory={"guest": "2Gi"}))
    write(place, way, first := manifest())
    named = {"kind": "VirtualMachineInstancetype", "name": "placed"}

    stored = write(place, way, manifest(instancetype=named), first)

    assert place.matchers(stored)[0] == named
    assert scheduler_of(stored) is None
    assert marks_of(stored).keys() & SCHEDULER_MARKS == set()


@as_a_whole
def test_a_scheduler_that_the_owner_declares_is_the_owners(place: Place, way: str) -> None:
    place.create(INSTANCETYPES, instancetype("placed", cluster=False, scheduler="volcano", memory={"guest": "2Gi"}))
    write(place, way, first := manifest())
    chosen = {"domain": {"devices": {}}, "schedulerName": "kubevirt"}

    stored = write(place, way, second := manifest(run="Manual", template=chosen), first)

    assert scheduler_of(stored) == "kubevirt"
    assert marks_of(stored).keys() & SCHEDULER_MARKS == set()
    named = {"kind": "VirtualMachineInstancetype", "name": "placed"}
    with pytest.raises(KubeError, match=r"spec\.template\.spec\.schedulerName conflicts"):
        write(place, way, manifest(template=chosen, instancetype=named), second)


@every_way
def test_what_rewrites_the_templates_annotations_keeps_our_mark(place: Place, way: str) -> None:
    first, second = manifest(), manifest()
    second["spec"]["template"]["metadata"] = {"annotations": {"mine": "yes"}}
    write(place, way, first)

    stored = write(place, way, second, first)
    overwritten = place.patch(VMS, "web", {"spec": {"template": {"metadata": {"annotations": None}}}})

    for found in (stored, overwritten):
        assert scheduler_of(found) == "kubevirt"
        assert marks_of(found).keys() >= SCHEDULER_MARKS


def clone(place: Place, **filters: Any) -> KubeObject:
    """A clone of the VM ``web``, by KubeVirt's own controller."""
    vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine"}
    spec = {"source": {**vm, "name": "web"}, "target": {**vm, "name": "copy"}, **filters}
    kind = {"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone"}
    place.create(CLONES, {**kind, "metadata": {"name": "copy"}, "spec": spec})

    def cloned() -> KubeObject | None:
        try:
            return place.get(VMS, "copy")
        except KubeError:
            return None

    return eventually(cloned, what="the clone")


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


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_a_vm_of_a_preset_has_a_size(place: Place) -> None:
    preset = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": "large"},
        "spec": {
            "selector": {"matchLabels": {"size": "large"}},
            "domain": {"devices": {}, "resources": {"requests": {"memory": "3Gi"}}},
        },
    }
    place.create("kubevirt.io/v1/virtualmachineinstancepresets", preset)
    sized = manifest(run="Always")
    sized["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}

    def left_alone() -> KubeObject | None:
        found = place.create(VMS, copy.deepcopy(sized), dryRun="All")
        return found if place.matchers(found) == [None, None] else None

    eventually(left_alone, what="the preset to be seen")
    write(place, "replace", sized)

    assert place.running()["spec"]["domain"]["resources"]["requests"]["memory"] == "3Gi"


@pytest.mark.parametrize("way", PATCHING)
def test_who_takes_the_only_size_away_is_told(place: Place, way: str) -> None:
    write(place, way, first := manifest(template=FOUR))

    stored = write(place, way, manifest(), first)

    assert "size" in said(stored)[0]
