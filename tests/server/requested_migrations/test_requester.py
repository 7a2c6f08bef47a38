"""Which migrations are requested for decisions of the preemption policy, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.builders import Json, changed, opted_in, settings
from tests.policies.eviction.world import NOW
from tests.policies.preemption import world
from tests.policies.preemption.world import facts, migration, review, victim
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.conftest import ServedApi, working
from tests.waiting import until
from webhook.placement.machines import MIGRATIONS, Migration
from webhook.placement.migrations import conflict
from webhook.policies.preemption.pods import name_of
from webhook.policies.preemption.settings import PREEMPTION, PreemptionSettings
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.requested_migrations.requester import MigrationRequester, RequestedMigration, requested_by

ENFORCE, OBSERVE = (BY_PATH[f"/validate/preemption/pods/{stage}"] for stage in ("enforce", "observe"))
WANTED = RequestedMigration("demo", "web01", world.POD_UID)
DEMO = MIGRATIONS.path("demo")
MIGRATION = msgspec.convert(migration(), Migration)


def evaluation(body: Json | None = None, *migrations: Json, mode: str = "enforce") -> Evaluation:
    section = changed(PreemptionSettings(), request_migrations=True)
    cluster = MemoryCluster({**facts(*migrations), **opted_in(PREEMPTION, mode=mode)})
    kept, used = KeptInMemory(), changed(settings(), **{PREEMPTION: section})
    reviewer = Reviewer(cluster, lambda: used, kept, wall=lambda: NOW)
    endpoint = ENFORCE if mode == "enforce" else OBSERVE
    return asyncio.run(reviewer.evaluate(endpoint, json.dumps(body or review()).encode(), 1e12))


def test_it_is_requested_once_the_deletion_is_put_off_for_it() -> None:
    assert requested_by(ENFORCE, evaluation()) == WANTED
    manifest = WANTED.manifest
    assert manifest["metadata"]["name"] == f"kubevirt-webhook-preempted-{world.POD_UID}"
    assert len(manifest["metadata"]["name"]) <= 63
    assert manifest["spec"] == {"vmiName": "web01"}


@pytest.mark.parametrize(
    ("body", "migrations", "mode"),
    [
        (review(dryRun=True), (), "enforce"),
        (review(), (), "warn"),
        (review(), (), "audit"),
        (review(), (migration(),), "enforce"),
        (review(user="admin"), (), "enforce"),
        (review(victim(uid="x" * 37)), (), "enforce"),
    ],
)
def test_nothing_is_requested_by_what_shall_have_no_effect(body: Json, migrations: Any, mode: str) -> None:
    assert requested_by(ENFORCE, evaluation(body, *migrations, mode=mode)) is None


class RequesterCase:
    def __init__(self, api: ServedApi) -> None:
        self.server, connection = api
        self.server.serve(MIGRATIONS)
        self.most = 10
        self.requester = MigrationRequester(connection, lambda: self.most)

    def put_off(self) -> None:
        """A deletion is put off for a migration."""
        self.requester.on_evaluated(ENFORCE, EVALUATION, 0.0)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.server.held(MIGRATIONS)]


EVALUATION = evaluation()
AT_ONCE = [evaluation(review(victim(uid=f"pod-{number}"))) for number in range(5)]


@pytest.fixture
def case(api: ServedApi) -> RequesterCase:
    return RequesterCase(api)


async def test_each_is_created_once(case: RequesterCase) -> None:
    async with working(case.requester.run()):
        case.put_off()
        case.put_off()
        assert case.server.asked == [], "no review waits for it"
        await until(lambda: case.requester.results["created"])
        assert case.names == [name_of(world.POD_UID)]
        # Another replica was first, or this one asks again before the policy sees it.
        case.server.fail(DEMO, 409, "AlreadyExists")
        case.put_off()
        await until(lambda: case.requester.results["present"], "the second try")
    assert case.requester.results == {"created": 1, "present": 1, "dropped": 0, "failed": 0}
    (created, again) = (json.loads(asked.body) for asked in case.server.asked)
    assert created == again == WANTED.manifest


async def test_what_cannot_be_created_is_said_and_tried_with_the_next_deletion(
    case: RequesterCase, caplog: pytest.LogCaptureFixture
) -> None:
    case.server.fail(DEMO, 403)
    case.put_off()
    with caplog.at_level(logging.WARNING):
        await case.requester.create_all()
    assert "grant create on virtualmachineinstancemigrations.kubevirt.io in namespace demo" in caplog.text
    case.put_off()
    await case.requester.create_all()
    assert (case.requester.results["failed"], case.requester.results["created"]) == (1, 1)


async def test_that_virt_api_denies_a_second_one_is_no_failure(
    case: RequesterCase, caplog: pytest.LogCaptureFixture
) -> None:
    text = f'admission webhook "x.kubevirt.io" denied the request: {conflict(MIGRATION)}'
    body = {"kind": "Status", "code": 400, "message": text}
    case.server.answer(DEMO, lambda _: web.json_response(body, status=400))
    case.put_off()
    with caplog.at_level(logging.WARNING):
        await case.requester.create_all()
    assert (case.requester.results["present"], case.requester.results["failed"], caplog.messages) == (1, 0, [])


async def test_after_a_bug_what_waits_is_created_all_the_same(
    case: RequesterCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = WANTED._replace(vm="web02", pod_uid="other")

    def fail(_: Any) -> None:
        raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(RequestedMigration, "manifest", property(fail))
        case.put_off()
        case.requester._waiting[other] = None
        with pytest.raises(KeyError):
            await case.requester.run()
    async with working(case.requester.run()):
        await until(lambda: case.requester.results["created"])
    assert case.names == [name_of("other")]


async def test_of_a_whole_node_at_once_no_more_are_requested_than_may_be_unfinished(case: RequesterCase) -> None:
    case.most = 2
    for each in AT_ONCE:
        case.requester.on_evaluated(ENFORCE, each, 0.0)
    assert case.requester.results["dropped"] == 3
    await case.requester.create_all()
    assert case.names == [name_of("pod-0"), name_of("pod-1")]
