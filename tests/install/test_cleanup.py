from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_files import Golden
from tests.install.memory import SIZE, TASTE, VMS, InstallMemory, Json, S, vm
from webhook import names
from webhook.errors import InputError
from webhook.install.cleanup import INJECTED_ANNOTATIONS, Task, clean, remaining, task, tasks
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.policies.scheduling.spread import constraints

SPREAD = names.INJECTED_SPREAD_ANNOTATION
OWN: Json = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}


def spread_vm(found: Any, mark: str = "hostname", **status: Any) -> Json:
    return vm({SPREAD: mark}, {SPREAD: mark}, spread=found, **status)


def declared(thing: Json, fields: Json) -> Json:
    """The same VM, whose owner's manifest declares these fields of the template."""
    applied = {"f:spec": {"f:template": {"f:spec": fields}}}
    thing["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": applied}]
    return thing


def declared_by_apply(thing: Json, *items: Json) -> Json:
    """The same VM, whose owner's manifest declares these constraints."""
    keys = [json.dumps({field: item[field] for field in ("topologyKey", "whenUnsatisfiable")}) for item in items]
    listed: Json = {f"k:{key}": {f"f:{field}": {} for field in item} for key, item in zip(keys, items, strict=True)}
    return declared(thing, {"f:topologySpreadConstraints": listed})


def constraints_of(thing: Json) -> Any:
    return thing["spec"]["template"]["spec"].get("topologySpreadConstraints")


def evaluated(thing: Json, *, allow: bool = False, schedulers: Sequence[str] = ()) -> Task | None:
    decoded = msgspec.json.decode(json.dumps(thing), type=UnstructuredVm)
    return task(decoded, allow_restart_required=allow, schedulers=schedulers)


def texts(thing: Json) -> str:
    found = evaluated(thing)
    assert found
    return "\n".join(found.texts)


def cleaned(thing: Json, *, allow: bool = False) -> Json:
    found = evaluated(thing, allow=allow)
    result: Json = jsonpatch.apply_patch(thing, list(found.operations)) if found else thing
    return result


OURS: Json = {S: "kubevirt"}
AS_DECLARED: Json = {"f:schedulerName": {}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The injected scheduler goes with its marks, and the owner's choice stays.
        (vm(OURS | {"their": "s"}, OURS, "kubevirt"), vm({"their": "s"}, {})),
        (vm(OURS, OURS, "theirs"), vm({}, {}, "theirs")),
        (vm(OURS, OURS), vm({}, {})),
        (declared(vm(OURS, OURS, "kubevirt"), AS_DECLARED), declared(vm({}, {}, "kubevirt"), AS_DECLARED)),
        # Marks on one side only.
        (vm(OURS, None, "kubevirt"), vm({}, None)),
        (vm(None, OURS, "kubevirt"), vm(None, {})),
        # Either annotation is enough, as for a pod that falls back to the default scheduler.
        (vm({S: "other"}, OURS, "kubevirt"), vm({}, {})),
        # Of a running VM: an annotation on the VM alone is not part of its template.
        (vm(OURS, None, "theirs", created=True), vm({}, None, "theirs", created=True)),
    ],
)
def test_what_is_left_of_a_vm(before: Json, after: Json) -> None:
    assert cleaned(before) == after


def test_instancetypes_keep_their_value_and_lose_the_mark() -> None:
    thing: Json = vm({SIZE: "A/b", TASTE: "C/d"}, created=True)
    thing["spec"]["instancetype"] = {"name": "b"}
    assert cleaned(thing) == {**thing, "metadata": {**thing["metadata"], "annotations": {}}}


@pytest.mark.parametrize(
    ("matcher", "kept"),
    [
        ({"name": "u1.medium"}, "u1.medium"),
        ({"kind": "VirtualMachineInstancetype", "name": "own"}, "VirtualMachineInstancetype/own"),
        *(({"revisionName": "r1"}, "r1"), ({}, ""), (None, "")),
    ],
    ids=["name", "kind", "revision", "empty", "none"],
)
def test_it_says_what_stays_and_not_what_the_mark_said(matcher: Json | None, kept: str, golden: Golden) -> None:
    thing = vm({SIZE: "VirtualMachineClusterInstancetype/u1.small"})
    thing["spec"]["instancetype"] = matcher
    text = texts(thing)

    assert "\n" not in text
    assert kept in text
    assert "u1.small" not in text
    golden(text)


@pytest.mark.parametrize("chosen", ["theirs", None])
def test_the_same_of_schedulers(chosen: str | None, golden: Golden) -> None:
    golden(texts(vm({S: "kubevirt"}, {S: "kubevirt"}, chosen)))


def test_a_scheduler_that_only_we_chose_goes_without_a_mark(golden: Golden) -> None:
    bare = vm(scheduler="kubevirt")
    found = evaluated(bare, schedulers=["kubevirt"])
    assert found
    golden("\n".join(found.texts))
    assert jsonpatch.apply_patch(bare, list(found.operations)) == vm()
    assert evaluated(bare, schedulers=["batch"]) is None


@pytest.mark.parametrize("mark", ["hostname", "zone", "both"])
def test_injected_constraints_go_with_their_marks(mark: str, golden: Golden) -> None:
    thing = spread_vm(constraints(mark), mark)
    golden(texts(thing))
    assert cleaned(thing) == vm({}, {})


@pytest.mark.control("forged-spread-in-cleanup")
@pytest.mark.parametrize("found", [[OWN], [{**constraints("hostname")[0], "maxSkew": 5}], ["odd"], "odd", [], None])
def test_the_owners_constraints_stay_and_lose_the_marks(found: Any) -> None:
    assert cleaned(spread_vm(found)) == vm({}, {}, spread=found)


@pytest.mark.control("forged-spread-in-cleanup")
@pytest.mark.parametrize("mark", ["off", "rack", ""])
def test_an_annotation_that_says_nothing_takes_no_constraints_away(mark: str) -> None:
    assert cleaned(spread_vm(constraints("hostname"), mark)) == vm({}, {}, spread=constraints("hostname"))


def test_of_a_mixture_the_injected_part_goes(golden: Golden) -> None:
    thing = spread_vm([*constraints("hostname"), OWN])
    golden(texts(thing))
    assert constraints_of(cleaned(thing)) == [OWN]


@pytest.mark.control("forged-spread-in-cleanup")
def test_constraints_that_a_manifest_declares_stay() -> None:
    injected = constraints("hostname")
    assert constraints_of(cleaned(declared_by_apply(spread_vm(injected), *injected))) == injected


def test_what_server_side_apply_merged_leaves_the_owners_fields() -> None:
    own = {key: constraints("hostname")[0][key] for key in ("topologyKey", "whenUnsatisfiable")} | {"maxSkew": 5}
    merged = {**constraints("hostname")[0], **own}
    assert constraints_of(cleaned(declared_by_apply(spread_vm([merged]), own))) == [own]


@pytest.mark.parametrize(
    "running",
    [vm({**OURS, SIZE: "A/b"}, OURS, "kubevirt", created=True), spread_vm(constraints("both"), "both", created=True)],
    ids=["scheduler", "constraints"],
)
def test_a_running_vm_is_only_reported(running: Json, golden: Golden) -> None:
    found = evaluated(running)
    assert found
    golden(found.left)
    kept = {key: each for key, each in running["metadata"]["annotations"].items() if key != SIZE}
    assert cleaned(running) == {**running, "metadata": {**running["metadata"], "annotations": kept}}
    assert cleaned(running, allow=True) == vm({}, {}, created=True)


@pytest.mark.parametrize(
    "bare",
    [
        *(vm(scheduler="kubevirt"), {"metadata": {}}, {"spec": {"template": None}}),
        # Constraints without a mark are the owner's.
        vm(spread=constraints("hostname")),
    ],
)
def test_without_marks_there_is_nothing_to_do(bare: Json) -> None:
    assert evaluated(bare) is None


_texts = st.sampled_from(["kubevirt", "batch", "", "a/b~c", "hostname", "both"])
_constraints = st.none() | st.lists(st.sampled_from([*constraints("both"), OWN, "odd"]), max_size=3)
_annotations = st.none() | st.dictionaries(st.sampled_from([*INJECTED_ANNOTATIONS, "their/s"]), _texts)


@pytest.mark.control("fields-of-others")
@given(_annotations, _annotations, st.none() | _texts, _constraints, st.booleans(), st.booleans())
def test_afterwards_no_mark_is_left_and_nothing_else_has_changed(
    outer: Json | None, inner: Json | None, scheduler: str | None, spread: Any, created: bool, allow: bool
) -> None:
    before = vm(outer, inner, scheduler, **({} if spread is None else {"spread": spread}), created=created)
    found = evaluated(before, allow=allow)
    after = cleaned(before, allow=allow)

    left = bool(found and found.left)
    assert left == bool(left and created and not allow)
    for mark in INJECTED_ANNOTATIONS:
        if not (left and mark in (S, SPREAD)):
            assert mark not in after["metadata"].get("annotations", {})
    if not left:
        assert {S, SPREAD}.isdisjoint(after["spec"]["template"]["metadata"].get("annotations") or {})
    taken = {tuple(one["path"].split("/")) for one in (found.operations if found else ()) if one["op"] == "remove"}
    assert all("injected-" in path[-1] or path[-1] in ("schedulerName", "topologySpreadConstraints") for path in taken)
    # The owner's own stay, whatever the annotations say.
    assert [one for one in spread or () if one in (OWN, "odd")] == [
        one for one in constraints_of(after) or () if one in (OWN, "odd")
    ]
    if created and not allow:
        assert after["spec"] == before["spec"]
    # Another evaluation finds nothing more to do, and leaves a VM that has changed alone.
    again = evaluated(after, allow=allow)
    assert again is None or not again.operations
    for one in found.operations if found else ():
        if one["op"] == "test":
            with pytest.raises(jsonpatch.JsonPatchException):
                jsonpatch.apply_patch(before, [{**one, "value": "changed"}])


@pytest.fixture
def api() -> InstallMemory:
    memory = InstallMemory()
    for namespace in ("shop", "lab"):
        memory.put(VMS.format(namespace, "web"), vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt"))
        memory.objects[VMS.format(namespace, "web")]["metadata"]["namespace"] = namespace
    marked: Json = {"metadata": {"annotations": {S: "k"}}}
    memory.put("/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web", marked)
    memory.put("/api/v1/namespaces/shop/pods/one", marked)
    memory.put("/api/v1/namespaces/shop/pods/two", {"metadata": {}})
    return memory


async def test_all_are_found_and_cleaned(api: InstallMemory) -> None:
    made = await tasks(api, allow_restart_required=False)

    assert [one.title for one in made] == ["VirtualMachine shop/web", "VirtualMachine lab/web"]
    assert await remaining(api) == (1, 1)
    assert [await clean(api, one) for one in made] == ["", ""]
    assert await tasks(api, allow_restart_required=False) == []
    assert len(api.wrote) == 2


async def test_what_can_not_be_changed_is_told(api: InstallMemory, golden: Golden) -> None:
    changed, gone = await tasks(api, "shop", allow_restart_required=False)
    api.objects[VMS.format("shop", "web")]["metadata"]["annotations"][S] = "other"
    del api.objects[VMS.format("lab", "web")]

    golden(await clean(api, changed))
    assert await clean(api, gone) == ""
    api.answers["PATCH", "/web"] = 403, {}
    assert "grant patch on virtualmachines.kubevirt.io in namespace shop" in await clean(api, changed)
    api.answers["PATCH", "/web"] = None
    golden(await clean(api, changed))


@pytest.mark.parametrize(
    "answer", [(403, {}), (410, {}), None, (200, b"nonsense")], ids=["forbidden", "expired", "no answer", "malformed"]
)
async def test_a_list_that_fails(api: InstallMemory, answer: tuple[int, Any] | None, golden: Golden) -> None:
    api.answers["GET", "/virtualmachines"] = answer
    with pytest.raises(InputError) as caught:
        await tasks(api, allow_restart_required=False)
    assert caught.value.where == "virtualmachines"
    golden(str(caught.value))


async def test_without_kubevirt_there_are_no_vms(api: InstallMemory) -> None:
    api.answers["GET", "/virtualmachines"] = 404, {}
    assert await tasks(api, allow_restart_required=False) == []


async def test_no_answer_in_time(api: InstallMemory, golden: Golden) -> None:
    async def late(*_: Any, **__: Any) -> tuple[int, bytes]:
        raise TimeoutError

    api.request = late  # type: ignore[method-assign]
    with pytest.raises(InputError) as caught:
        await tasks(api, allow_restart_required=False)
    golden(str(caught.value))


@pytest.mark.control("deep-objects-in-scans")
@pytest.mark.parametrize("levels", [200, *range(930, 990, 4), 1100, 9_000])
@pytest.mark.parametrize("place", ["labels", "mark", "scheduler"])
async def test_one_vm_of_any_depth_keeps_no_other_from_being_cleaned(
    api: InstallMemory, monkeypatch: pytest.MonkeyPatch, levels: int, place: str
) -> None:
    hostile = api.objects[VMS.format("lab", "web")]
    hostile["spec"]["template"] = {
        "labels": vm({}, {"x": "@deep@"}),
        "mark": vm({}, {S: "@deep@"}),
        "scheduler": vm({}, {S: "kubevirt"}, "@deep@"),
    }[place]["spec"]["template"]
    answered = api.request

    async def request(*arguments: Any, **more: Any) -> tuple[int, bytes]:
        status, body = await answered(*arguments, **more)
        return status, body.replace(b'"@deep@"', b'{"a":' * levels + b"1" + b"}" * levels)

    monkeypatch.setattr(api, "request", request)

    made = await tasks(api, allow_restart_required=False)

    assert [one.title for one in made] == ["VirtualMachine shop/web", "VirtualMachine lab/web"]
    assert [await clean(api, one) for one in made] == ["", ""]
    assert S not in api.objects[VMS.format("lab", "web")]["metadata"]["annotations"]
