from __future__ import annotations

import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.install.memory import Memory
from webhook import names
from webhook.errors import InputError
from webhook.install.cleanup import MARKS, Cleanup, Task, task
from webhook.objects import WholeVm

Json = dict[str, Any]
VMS = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines/{}"
RESTART = "the VM runs, and would ask for a restart"
S, SIZE, TASTE = names.SCHEDULER_MARK, names.INSTANCETYPE_MARK, names.PREFERENCE_MARK


def vm(outer: Json | None = None, inner: Json | None = None, scheduler: Any = None, **status: Any) -> Json:
    template: Json = {"metadata": {"annotations": inner} if inner is not None else {}, "spec": {"domain": {}}}
    if scheduler is not None:
        template["spec"]["schedulerName"] = scheduler
    metadata: Json = {"name": "web", "namespace": "shop"}
    if outer is not None:
        metadata["annotations"] = outer
    return {"metadata": metadata, "spec": {"template": template}, "status": status}


def judged(thing: Json, *, allow: bool = False) -> Task | None:
    return task(msgspec.json.decode(json.dumps(thing), type=WholeVm), allow_restart_required=allow)


def cleaned(thing: Json, *, allow: bool = False) -> Json:
    found = judged(thing, allow=allow)
    result: Json = jsonpatch.apply_patch(thing, list(found.operations)) if found else thing
    return result


def test_our_scheduler_goes_with_its_marks() -> None:
    assert cleaned(vm({S: "kubevirt", "their": "s"}, {S: "kubevirt"}, "kubevirt")) == vm({"their": "s"}, {})


@pytest.mark.parametrize("chosen", ["theirs", None])
def test_the_owners_choice_stays(chosen: str | None) -> None:
    assert cleaned(vm({S: "kubevirt"}, {S: "kubevirt"}, chosen)) == vm({}, {}, chosen)


def test_marks_on_one_side_only() -> None:
    assert cleaned(vm({S: "kubevirt"}, None, "kubevirt")) == vm({}, None)
    assert cleaned(vm(None, {S: "kubevirt"}, "kubevirt")) == vm(None, {})
    # Either of them tells, as for a pod that falls back.
    assert cleaned(vm({S: "other"}, {S: "kubevirt"}, "kubevirt")) == vm({}, {})


def test_instancetypes_keep_their_value_and_lose_the_mark() -> None:
    thing: Json = vm({SIZE: "A/b", TASTE: "C/d"}, created=True)
    thing["spec"]["instancetype"] = {"name": "b"}
    after = cleaned(thing)

    assert after["metadata"]["annotations"] == {}
    assert after["spec"] == thing["spec"]


@pytest.mark.parametrize(
    ("matcher", "said"),
    [
        ({"name": "u1.medium"}, "spec.instancetype stays u1.medium"),
        (
            {"kind": "VirtualMachineInstancetype", "name": "own"},
            "spec.instancetype stays VirtualMachineInstancetype/own",
        ),
        ({"revisionName": "r1"}, "spec.instancetype stays r1"),
        ({}, "the VM has no spec.instancetype"),
        (None, "the VM has no spec.instancetype"),
    ],
)
def test_it_says_what_stays_and_not_what_the_mark_said(matcher: Json | None, said: str) -> None:
    thing = vm({SIZE: "VirtualMachineClusterInstancetype/u1.small"})
    thing["spec"]["instancetype"] = matcher
    found = judged(thing)

    assert found
    assert found.texts == (f"removes the annotation {SIZE}; {said}",)


@pytest.mark.parametrize(
    ("chosen", "said"), [("theirs", "schedulerName stays theirs"), (None, "the VM has no schedulerName")]
)
def test_the_same_of_schedulers(chosen: str | None, said: str) -> None:
    found = judged(vm({S: "kubevirt"}, {S: "kubevirt"}, chosen))

    assert found
    assert found.texts == (f"removes the annotation {S}; {said}",)


def test_a_scheduler_that_only_we_chose_goes_without_a_mark() -> None:
    bare = msgspec.json.decode(json.dumps(vm(scheduler="kubevirt")), type=WholeVm)
    found = task(bare, allow_restart_required=False, schedulers=["kubevirt"])

    assert found
    assert found.texts == ("removes schedulerName kubevirt",)
    assert jsonpatch.apply_patch(vm(scheduler="kubevirt"), list(found.operations)) == vm()
    assert task(bare, allow_restart_required=False, schedulers=["batch"]) is None


def test_what_a_manifest_declares_is_the_owners() -> None:
    thing = vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt")
    fields: Json = {"f:spec": {"f:template": {"f:spec": {"f:schedulerName": {}}}}}
    thing["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]

    assert cleaned(thing)["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"


def test_a_running_vm_is_only_reported() -> None:
    running = vm({S: "kubevirt", SIZE: "A/b"}, {S: "kubevirt"}, "kubevirt", created=True)
    found = judged(running)

    assert found
    assert found.left == f"not done: removes schedulerName kubevirt and the annotation {S}; {RESTART}"
    assert cleaned(running) == vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt", created=True)
    assert cleaned(running, allow=True) == vm({}, {}, created=True)
    # A mark that stands on the VM alone is no part of its template.
    assert cleaned(vm({S: "kubevirt"}, None, "theirs", created=True)) == vm({}, None, "theirs", created=True)


def test_without_marks_there_is_nothing_to_do() -> None:
    bare: list[Json] = [vm(scheduler="kubevirt"), {"metadata": {}}, {"spec": {"template": None}}]

    assert [judged(thing) for thing in bare] == [None] * 3


_texts = st.sampled_from(["kubevirt", "batch", "", "a/b~c"])
_annotations = st.none() | st.dictionaries(st.sampled_from([*MARKS, "their/s"]), _texts)


@given(_annotations, _annotations, st.none() | _texts, st.booleans(), st.booleans())
def test_afterwards_no_mark_is_left_and_nothing_else_has_changed(
    outer: Json | None, inner: Json | None, scheduler: str | None, created: bool, allow: bool
) -> None:
    before = vm(outer, inner, scheduler, created=created)
    found = judged(before, allow=allow)
    after = cleaned(before, allow=allow)

    left = bool(found and found.left)
    assert left == bool(left and created and not allow)
    for mark in MARKS:
        if not (left and mark == S):
            assert mark not in after["metadata"].get("annotations", {})
    if not left:
        assert S not in after["spec"]["template"]["metadata"].get("annotations", {})
    taken = {tuple(one["path"].split("/")) for one in (found.operations if found else ()) if one["op"] == "remove"}
    assert all("injected-" in path[-1] or path[-1] == "schedulerName" for path in taken)
    if created and not allow:
        assert after["spec"] == before["spec"]
    # A second time there is nothing more to do, and a VM that has changed is not touched.
    again = judged(after, allow=allow)
    assert again is None or not again.operations
    for one in found.operations if found else ():
        if one["op"] == "test":
            with pytest.raises(jsonpatch.JsonPatchException):
                jsonpatch.apply_patch(before, [{**one, "value": "changed"}])


@pytest.fixture
def api() -> Memory:
    memory = Memory()
    for namespace in ("shop", "lab"):
        memory.put(VMS.format(namespace, "web"), vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt"))
        memory.objects[VMS.format(namespace, "web")]["metadata"]["namespace"] = namespace
    memory.put(
        "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web", {"metadata": {"annotations": {S: "k"}}}
    )
    memory.put("/api/v1/namespaces/shop/pods/one", {"metadata": {"annotations": {S: "k"}}})
    memory.put("/api/v1/namespaces/shop/pods/two", {"metadata": {}})
    return memory


async def test_all_are_found_and_cleaned(api: Memory) -> None:
    work = Cleanup(api)
    tasks = await work.tasks(allow_restart_required=False)

    assert [one.title for one in tasks] == ["VirtualMachine shop/web", "VirtualMachine lab/web"]
    assert await work.remaining() == (1, 1)
    assert [await work.clean(one) for one in tasks] == ["", ""]
    assert await work.tasks(allow_restart_required=False) == []
    assert len(api.wrote) == 2


async def test_what_can_not_be_changed_is_told(api: Memory) -> None:
    work = Cleanup(api, "shop")
    changed, gone = await work.tasks(allow_restart_required=False)
    api.objects[VMS.format("shop", "web")]["metadata"]["annotations"][S] = "other"
    del api.objects[VMS.format("lab", "web")]

    assert "changed meanwhile" in await work.clean(changed)
    assert await work.clean(gone) == ""
    api.answers["PATCH", "/web"] = 403, {}
    assert "grant patch on virtualmachines.kubevirt.io in namespace shop" in await work.clean(changed)
    api.answers["PATCH", "/web"] = None
    assert "did not answer" in await work.clean(changed)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((403, {}), "grant list on virtualmachines"),
        ((410, {}), "answered 410"),
        (None, "did not answer"),
        ((200, b"nonsense"), "can't be decoded"),
    ],
)
async def test_a_list_that_fails(api: Memory, answer: tuple[int, Any] | None, told: str) -> None:
    api.answers["GET", "/virtualmachines"] = answer
    with pytest.raises(InputError, match=told):
        await Cleanup(api).tasks(allow_restart_required=False)


async def test_without_kubevirt_there_are_no_vms(api: Memory) -> None:
    api.answers["GET", "/virtualmachines"] = 404, {}
    assert await Cleanup(api).tasks(allow_restart_required=False) == []


async def test_no_answer_in_time(api: Memory) -> None:
    async def late(*_: Any, **__: Any) -> tuple[int, bytes]:
        raise TimeoutError

    api.request = late  # type: ignore[method-assign]
    with pytest.raises(InputError, match="no answer within 60 s"):
        await Cleanup(api).tasks(allow_restart_required=False)


@pytest.mark.parametrize("levels", [200, *range(930, 990, 4), 1100, 9_000])
@pytest.mark.parametrize("place", ["labels", "mark", "scheduler"])
async def test_one_vm_of_any_depth_keeps_no_other_from_being_cleaned(
    api: Memory, monkeypatch: pytest.MonkeyPatch, levels: int, place: str
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
    work = Cleanup(api)

    tasks = await work.tasks(allow_restart_required=False)

    assert [one.title for one in tasks] == ["VirtualMachine shop/web", "VirtualMachine lab/web"]
    assert [await work.clean(one) for one in tasks] == ["", ""]
    assert S not in api.objects[VMS.format("lab", "web")]["metadata"]["annotations"]
