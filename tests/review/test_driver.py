"""Decisions from informers, and the objects that are read again before a denial or a patch."""

from __future__ import annotations

import asyncio
import math
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, TypeVar

import msgspec
import pytest

from tests import builders
from tests.builders import AVAILABLE, Json, changed, known, review
from tests.policies.decisions import answered
from tests.policies.instancetypes import world
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.admission.step_budget import MAX_STEPS, spend
from webhook.errors import InputError, Unavailable
from webhook.facts import NOT_READ, Facts, Key, ListKey, NamespaceKey, ObjectKey, SchedulerKey, Unreadable, from_memory
from webhook.k8s.types.meta import Namespace, Unstructured
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, PRESETS, REVISIONS, UNSTRUCTURED, UNSTRUCTURED_VMIS
from webhook.kubevirt.types.views import ControllerRevision, Instancetype
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.registry import BY_PATH
from webhook.policies.scheduling import reasons as scheduling
from webhook.review.driver import confirmed, drive
from webhook.review.reviewer import Evaluation, Reviewer

T = TypeVar("T")
NAMES = [NamespaceKey(f"n{number}") for number in range(20)]
FactsByKey = dict[Key[Any], object]

MUTATE_VM = "/mutate/instancetypes/virtualmachines/enforce"
VALIDATE_VM = "/validate/instancetypes/virtualmachines/enforce"
SCHEDULE_VM = "/mutate/scheduling/virtualmachines/enforce"
MUTATE_VMI = "/mutate/instancetypes/virtualmachineinstances/enforce"

SIZE = ObjectKey(UNSTRUCTURED["VirtualMachineClusterInstancetype"], "", "u1.small")
LIKES = ObjectKey(UNSTRUCTURED["VirtualMachineClusterPreference"], "", "fedora")
IN_DEMO = ListKey(PRESETS, "demo")
NAMED = {"instancetype": world.SMALL, "preference": world.FEDORA}
DEFAULTS = {names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small", names.DEFAULT_PREFERENCE_ANNOTATION: "fedora"}
DEMANDING = world.preference(requirements={"cpu": {"guest": 16}})


class Together(MemoryCluster):
    """Answers only when two keys are being read."""

    def __init__(self, facts: dict[Key[Any], object]) -> None:
        super().__init__(facts, peeked=set())
        self.both = asyncio.Barrier(2)

    async def read(self, key: Key[Any], deadline: float) -> Any:
        await self.both.wait()
        return await super().read(key, deadline)


def one_by_one(keys: list[NamespaceKey]) -> Callable[[Facts], Coroutine[Any, Any, list[Any]]]:
    async def policy(facts: Facts) -> list[Any]:
        return [await facts.get(key) for key in keys]

    return policy


async def driven(
    policy: Callable[[Facts], Coroutine[Any, Any, T]], cluster: MemoryCluster, deadline: float = math.inf
) -> T:
    facts = Facts()
    return await drive(policy(facts), cluster, facts, deadline, "it")


async def test_what_is_missing_is_read_and_the_policy_goes_on() -> None:
    cluster = MemoryCluster({NAMES[0]: None, NAMES[1]: Unavailable("no")}, peeked=set())
    assert await driven(one_by_one(NAMES[:2]), cluster) == [None, Unavailable("no")]
    assert cluster.reads == NAMES[:2]


async def test_what_is_needed_at_once_is_read_at_once() -> None:
    async def policy(facts: Facts) -> tuple[object, ...]:
        return await facts.all(*NAMES[:2])

    assert await driven(policy, Together({NAMES[0]: None, NAMES[1]: Unavailable("no")})) == (None, Unavailable("no"))


async def test_a_policy_may_need_any_number_of_facts_one_after_the_other() -> None:
    cluster = MemoryCluster(dict.fromkeys(NAMES), peeked=set())
    assert await driven(one_by_one(NAMES), cluster) == [None] * len(NAMES)
    assert cluster.reads == NAMES


async def test_the_policy_runs_once_whatever_it_awaits() -> None:
    begun: list[str] = []

    async def policy(facts: Facts) -> None:
        begun.append("")
        for key in NAMES:
            await facts.get(key)

    await driven(policy, MemoryCluster(dict.fromkeys(NAMES), peeked=set()))
    assert len(begun) == 1


async def test_the_deadline_ends_it() -> None:
    """What was read in time is decided on; what would be needed after it is not passed off as read."""
    now = asyncio.get_running_loop().time()

    class Slow(MemoryCluster):
        async def read(self, key: Key[Any], deadline: float) -> Any:
            await asyncio.sleep(deadline - asyncio.get_running_loop().time())
            return await super().read(key, deadline)

    cluster, ended = Slow(dict.fromkeys(NAMES), peeked=set()), list[object]()

    async def cleaning(facts: Facts) -> None:
        try:
            await facts.get(NAMES[0])
            await facts.get(NAMES[1])
        except Exception as error:
            ended.append(error)
        finally:
            ended.append("ended")

    assert await driven(one_by_one(NAMES[:1]), cluster, now + 0.01) == [None]
    with pytest.raises(Unreadable):
        await driven(cleaning, cluster, asyncio.get_running_loop().time() + 0.01)
    assert ended == ["ended"]
    with pytest.raises(Unreadable):
        await driven(one_by_one(NAMES[:1]), cluster, now)
    assert cluster.reads == [NAMES[0], NAMES[0]]


async def test_a_policy_ends_with_its_cancelled_review() -> None:
    ended: list[str] = []

    class Stuck(MemoryCluster):
        async def read(self, key: Key[Any], deadline: float) -> Any:
            await asyncio.Event().wait()

    async def policy(facts: Facts) -> None:
        try:
            await facts.get(NAMES[0])
        finally:
            ended.append("ended")

    review = asyncio.create_task(driven(policy, Stuck({})))
    await asyncio.sleep(0)
    review.cancel()
    with pytest.raises(asyncio.CancelledError):
        await review
    assert ended == ["ended"]


@types.coroutine
def nothing() -> Generator[tuple[()], None, None]:
    yield ()


async def future() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("awaited", [lambda: asyncio.sleep(0), future, nothing], ids=["sleep", "future", "nothing"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_policy_that_awaits_something_else_than_facts_is_a_bug(
    awaited: Callable[[], Awaitable[None]], is_first: bool
) -> None:
    """It ends at once as one clear error, whoever drives it."""
    ended: list[str] = []

    async def policy(facts: Facts) -> Decision:
        try:
            if not is_first:
                await facts.get(NAMES[0])
            await awaited()
        finally:
            ended.append("")
        return Decision(())

    with pytest.raises(RuntimeError, match="a policy awaits something that is not a fact"):
        await driven(policy, MemoryCluster({NAMES[0]: None}, peeked=set()))
    with pytest.raises(RuntimeError, match="a policy awaits something that is not a fact"):
        from_memory(policy(Facts.of({NAMES[0]: None})))
    assert len(ended) == 2

    async def handler(view: object, request: object, facts: Facts, settings: object) -> Decision:
        return await policy(facts)

    kept, endpoint = KeptInMemory(), msgspec.structs.replace(BY_PATH[SCHEDULE_VM], handler=handler)
    place = msgspec.convert(
        {"metadata": {"name": "demo", "labels": {names.policy_label(names.SCHEDULING): "enforce"}}}, Namespace
    )
    cluster = MemoryCluster({**known(), NamespaceKey("demo"): place, NAMES[0]: None}, peeked=set())
    cluster.peeked = set(cluster.facts) - {NAMES[0]}
    reviewer = Reviewer(cluster, builders.settings, kept, kept)
    evaluation = await reviewer.evaluate(endpoint, msgspec.json.encode(review(builders.vm())), math.inf)
    assert evaluation.decision.code == common.BUG
    assert [type(error) for error in kept.errors] == [RuntimeError]


@pytest.mark.control("largest-objects")
async def test_the_parts_of_a_policy_share_one_budget_of_steps() -> None:
    async def policy(facts: Facts) -> str:
        spend(MAX_STEPS // 2, "names")
        await facts.get(NAMES[0])
        spend(MAX_STEPS // 2, "names")
        return "done"

    cluster, facts = MemoryCluster(dict.fromkeys(NAMES), peeked=set()), Facts()
    assert await drive(policy(facts), cluster, facts, math.inf, "it") == "done"
    assert facts.budget.spent == 2 * (MAX_STEPS // 2)
    with pytest.raises(InputError) as refused:
        await drive(policy(facts), cluster, facts, math.inf, "it")
    assert refused.value.where == "it"


def whole(obj: Json | None) -> Unstructured | None:
    return None if obj is None else msgspec.convert(obj, Unstructured)


def uncached(key: Key[Any]) -> Key[Any]:
    return msgspec.structs.replace(key, uncached=True)


def evaluated(
    path: str,
    obj: Json,
    copies: Mapping[Key[Any], object],
    now: Mapping[Key[Any], object] | None = None,
    section: InstancetypeSettings | None = None,
    *,
    absent: Key[Any] | None = None,
    **request: Any,
) -> tuple[Evaluation, list[Key[Any]]]:
    """The verdict where copies say one thing and the API server another, and what was asked of the API server.

    No copy has what is ``absent``.
    """
    labels = dict.fromkeys((names.policy_label(policy) for policy in ("instancetypes", "scheduling")), "enforce")
    place = msgspec.convert({"metadata": {"name": "demo", "labels": labels, "annotations": DEFAULTS}}, Namespace)
    facts: FactsByKey = {**known(), **world.facts([]), NamespaceKey("demo"): place, IN_DEMO: ()}
    facts |= {SchedulerKey("kubevirt", "demo"): AVAILABLE, **copies}
    later = {uncached(key): value for key, value in (now or {}).items()}
    cluster = MemoryCluster(facts | later, peeked=set(facts) - {absent})
    settings = changed(builders.settings(), instancetypes=section or InstancetypeSettings())
    kept = KeptInMemory()
    reviewer = Reviewer(cluster, lambda: settings, kept, kept)
    body = msgspec.json.encode(review(obj, "alice", **request))
    verdict = asyncio.run(reviewer.evaluate(BY_PATH[path], body, 1e9))
    assert kept.errors == []
    return verdict, cluster.reads


def objects(size: Json | None = None, likes: Json | None = None) -> FactsByKey:
    return {SIZE: whole(size or world.instancetype()), LIKES: whole(likes or world.preference())}


SIZE_OF_VMS = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")


@pytest.mark.parametrize(
    ("path", "obj", "code"),
    [
        (MUTATE_VM, world.vm(), instancetypes.DEFAULTS_INJECTED),
        (VALIDATE_VM, world.vm(**NAMED), instancetypes.VALID),
        (SCHEDULE_VM, builders.vm(instancetype=world.SMALL), scheduling.INJECTED),
    ],
)
def test_what_is_to_the_senders_liking_rests_on_copies_alone(path: str, obj: Json, code: str) -> None:
    copies = {**objects(), SIZE_OF_VMS: msgspec.convert(world.instancetype(), Instancetype)}
    verdict, asked = evaluated(path, obj, copies)
    assert (verdict.decision.code, asked) == (code, [])


def test_a_just_deleted_default_is_still_written_and_a_just_deleted_name_still_passes() -> None:
    """As if they were deleted a moment later: KubeVirt admits the VM, and starts it once the object is there."""
    gone: FactsByKey = {SIZE: None, LIKES: None}
    injected, asked = evaluated(MUTATE_VM, world.vm(), objects(), gone)
    passed, too = evaluated(VALIDATE_VM, world.vm(**NAMED), objects(), gone, InstancetypeSettings(missing="deny"))
    assert (injected.decision.code, passed.decision.code) == (instancetypes.DEFAULTS_INJECTED, instancetypes.VALID)
    assert asked == too == []


@pytest.mark.control("old-store-denies")
def test_nothing_is_denied_for_a_size_that_has_just_been_changed() -> None:
    copies, now = objects(likes=DEMANDING), objects()
    denied, asked = evaluated(VALIDATE_VM, world.vm(**NAMED), copies, copies)
    passed, too = evaluated(VALIDATE_VM, world.vm(**NAMED), copies, now)
    assert (denied.decision.code, passed.decision.code) == (instancetypes.DENIED, instancetypes.VALID)
    # Both in one batch.
    assert set(asked) == set(too) == {uncached(SIZE), uncached(LIKES)}


@pytest.mark.control("old-store-denies")
def test_no_default_is_left_out_for_a_size_that_has_just_been_changed() -> None:
    copies, now = objects(likes=DEMANDING), objects()
    less, asked = evaluated(MUTATE_VM, world.vm(), copies, copies)
    both, too = evaluated(MUTATE_VM, world.vm(), copies, now)
    assert [change.path for change in less.decision.changes if change.path[0] == "spec"] == [("spec", "instancetype")]
    assert {change.path for change in both.decision.changes} >= {("spec", "instancetype"), ("spec", "preference")}
    assert (bool(less.decision.warnings), both.decision.warnings) == (True, ())
    assert set(asked) == set(too) == {uncached(SIZE), uncached(LIKES), uncached(IN_DEMO)}


def test_no_default_is_withdrawn_for_a_size_that_has_just_been_changed() -> None:
    marks = {names.INJECTED_INSTANCETYPE_ANNOTATION: world.SMALL_MARK}
    marks[names.INJECTED_PREFERENCE_ANNOTATION] = world.FEDORA_MARK
    old = world.vm(annotations=marks, **NAMED)
    changed = world.vm(annotations=marks, template={"terminationGracePeriodSeconds": 17}, **NAMED)
    copies = objects(size=world.instancetype(schedulerName="other"), likes=DEMANDING)
    verdict, _ = evaluated(MUTATE_VM, changed, copies, objects(), operation="UPDATE", oldObject=old)
    assert verdict.decision.changes == ()


def test_a_denial_for_want_of_an_object_is_certain_without_being_asked_twice() -> None:
    """A GET has already read an object that a copy lacks."""
    missing = ObjectKey(SIZE.resource, "", "missing")
    vm = world.vm(instancetype={"name": "missing"}, preference=world.FEDORA)
    section = InstancetypeSettings(missing="deny")
    verdict, asked = evaluated(VALIDATE_VM, vm, {**objects(), missing: None}, None, section, absent=missing)
    assert (verdict.decision.code, asked.count(missing)) == (instancetypes.MISSING, 1)
    assert uncached(missing) not in asked


def test_what_can_not_be_read_anew_denies_nobody() -> None:
    unreadable: FactsByKey = dict.fromkeys((SIZE, LIKES), Unavailable("no answer"))
    verdict, _ = evaluated(VALIDATE_VM, world.vm(**NAMED), objects(likes=DEMANDING), unreadable)
    assert (verdict.decision.code, verdict.outcome.denial) == (common.LOOKUP_FAILED, None)


@pytest.mark.parametrize(
    ("path", "obj", "section"),
    [
        (MUTATE_VMI, world.vmi(), InstancetypeSettings(virtual_machine_instances=True)),
        (MUTATE_VM, world.vm(), InstancetypeSettings(expand=True)),
    ],
)
def test_what_is_filled_in_is_what_the_objects_say_now(path: str, obj: Json, section: InstancetypeSettings) -> None:
    now = objects(size=world.instancetype(memory={"guest": "8Gi"}))
    verdict, asked = evaluated(path, obj, objects(), now, section)
    assert "8Gi" in str([change.new for change in verdict.decision.changes])
    assert {uncached(SIZE), uncached(LIKES)} <= set(asked)


@pytest.mark.control("revision-recreated")
def test_a_list_that_must_hold_looks_at_the_revision_of_now() -> None:
    """One that was exchanged within the second that answers are shared for is noticed."""
    key = ObjectKey(UNSTRUCTURED["ControllerRevision"], "demo", "r1")
    small, huge = (whole(world.revision("r1", world.instancetype(name))) for name in ("u1.small", "huge"))
    vm = world.vm(instancetype={"name": "u1.small", "revisionName": "r1"})
    allowed = InstancetypeSettings(allowed=("u1.small",))
    passed, asked = evaluated(VALIDATE_VM, vm, {**objects(), key: small}, {key: small}, allowed)
    denied, _ = evaluated(VALIDATE_VM, vm, {**objects(), key: small}, {key: huge}, allowed)
    assert (passed.decision.code, denied.decision.code) == (instancetypes.VALID, instancetypes.NOT_ALLOWED)
    assert asked == [uncached(key)]


def test_a_relabelled_revision_is_another_one() -> None:
    key = ObjectKey(REVISIONS, "demo", "r1")
    captured = world.revision("r1", world.instancetype(schedulerName="other"))
    copy = msgspec.convert(captured, ControllerRevision)
    now = msgspec.convert({**captured, "metadata": {"name": "r1", "namespace": "demo"}}, ControllerRevision)
    marks = {names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}
    vm = builders.vm(instancetype={**world.SMALL, "revisionName": "r1"})
    vm["metadata"]["annotations"] = marks
    vm["spec"]["template"]["spec"]["schedulerName"] = "kubevirt"
    vm["spec"]["template"]["metadata"] = {"annotations": marks}

    codes = [
        evaluated(SCHEDULE_VM, vm, {key: copy}, {key: found}, operation="UPDATE", oldObject=vm)[0].decision.code
        for found in (copy, now)
    ]
    assert codes == [scheduling.SCHEDULER_WITHDRAWN, scheduling.ALREADY_INJECTED]


def vmi_on(node: str) -> Unstructured:
    return msgspec.convert({"metadata": {"name": "web"}, "spec": {}, "status": {"nodeName": node}}, Unstructured)


def revision_of(name: str) -> ControllerRevision:
    labels = {"instancetype.kubevirt.io/object-name": name}
    return msgspec.convert({"metadata": {"name": "r1", "labels": labels}}, ControllerRevision)


def labelled(**labels: str) -> Unstructured | None:
    made = world.instancetype()
    return whole(made | {"metadata": made["metadata"] | {"labels": labels}})


@pytest.mark.parametrize(
    ("key", "before", "now", "again"),
    [
        (ObjectKey(UNSTRUCTURED_VMIS, "demo", "web"), vmi_on("a"), vmi_on("a"), False),
        (ObjectKey(UNSTRUCTURED_VMIS, "demo", "web"), vmi_on("a"), vmi_on("b"), True),
        (ListKey(UNSTRUCTURED_VMIS, "demo"), (vmi_on("a"),), (vmi_on("b"),), True),
        (ObjectKey(REVISIONS, "demo", "r1"), revision_of("a"), revision_of("b"), True),
        # Informers keep no labels of these, so nothing is decided by them.
        (SIZE, labelled(), labelled(team="a"), False),
        (SIZE, labelled(), None, True),
        (IN_DEMO, (labelled(),), (labelled(team="a"),), False),
        (IN_DEMO, (labelled(),), (), True),
    ],
)
def test_what_has_changed_since_a_store_had_it_is_decided_by_again(
    key: Key[Any], before: object, now: object, again: bool
) -> None:
    async def policy(facts: Facts) -> Decision:
        seen.append(await facts.get(key))
        return Decision((common.out_of_scope,), warnings=(common.out_of_scope,))

    seen: list[object] = []
    answered(confirmed(policy, Facts(peek=lambda asked: before if asked == key else NOT_READ)), {uncached(key): now})
    assert seen == ([before, now] if again else [before])


@pytest.mark.parametrize(
    ("before", "now", "code", "asked"),
    [
        (True, True, instancetypes.SIZED, [uncached(IN_DEMO)]),
        # It leaves no VM without a size.
        (True, False, instancetypes.DEFAULTS_INJECTED, [uncached(IN_DEMO)]),
        # It is passed over, as virt-api may do.
        (False, True, instancetypes.DEFAULTS_INJECTED, []),
    ],
    ids=["there", "just deleted", "just created"],
)
def test_a_preset(before: bool, now: bool, code: str, asked: list[Key[Any]]) -> None:
    vm, presets = world.vm(), (whole(world.preset()),)
    vm["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
    copies: FactsByKey = {**objects(), IN_DEMO: presets if before else ()}
    verdict, read = evaluated(MUTATE_VM, vm, copies, {IN_DEMO: presets if now else ()})
    assert (verdict.decision.code, read) == (code, asked)
