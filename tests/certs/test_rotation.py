"""The rotation, with the API server in memory: its order, and that no stop, race or foreign hand breaks it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs.authority import verifies
from certs.pem import CertificateError, Pair
from certs.rotation import CA_CRT, CA_KEY, GRACE_SECONDS, RETRY_SECONDS, SPREAD_SECONDS, NotNow, RotationEvent
from certs.source import self_signed
from certs.state import MOST_RETIRED
from tests.certs import memory
from tests.certs.memory import DAY, NAMES, CertsWorld, settled
from tests.golden_files import Golden

SELF_SIGNED = self_signed([memory.HOST], memory.START, timedelta(days=90)).certificate


async def test_first_start_of_many_at_once() -> None:
    world = CertsWorld()
    replicas = [world.start() for _ in range(5)]
    for _ in range(12):
        await asyncio.gather(*(replica.step() for replica in replicas))
        world.check()
    assert len({replica.rotation.rotated for replica in replicas}) == 1
    assert world.trusted == [{world.issuer.pem}] * 6
    assert [(replica.rotation.waiting_for(), len(replica.pairs)) for replica in replicas] == [((), 1)] * 5


async def test_nothing_is_written_while_nothing_changes() -> None:
    world = await settled(3)
    await world.settle()
    before, plans = world.writes, [replica.plans for replica in world.replicas]
    assert max(plans) <= 7
    for name in NAMES:
        if found := world.configurations[name]:
            world.overwrite(name, found.bundles)
    await world.settle()
    assert [replica.plans for replica in world.replicas] == plans, "nor planned, though versions have changed"
    world.clock.advance(DAY)
    await world.settle()
    assert (world.writes, [len(replica.pairs) for replica in world.replicas]) == (before, [1, 1, 1])
    assert [replica.plans - former for replica, former in zip(world.replicas, plans, strict=True)] == [1, 1, 1]


async def test_what_fails_is_tried_again_by_the_same_plan() -> None:
    """A permission that is missing makes no keys every two seconds."""
    world = CertsWorld()
    replica = world.start()
    world.at = memory.reject("create secret")
    for _ in range(20):
        assert await replica.step() == RETRY_SECONDS
        world.clock.advance(RETRY_SECONDS)
    assert (replica.plans, replica.rotation.failures) == (1, 20)
    world.at = lambda _: None
    await world.settle()
    assert replica.leaf


@pytest.mark.control("rotation-breaks-calls")
async def test_order_of_a_rotation() -> None:
    world = await settled()
    (replica,) = world.replicas
    old = world.issuer
    world.ask()
    steps: list[tuple[str, int, int]] = []
    for _ in range(8):
        await replica.step()
        world.clock.advance(SPREAD_SECONDS / 2)
        world.check()
        new = world.state.incoming or world.issuer
        word = "signs" if world.issuer == new else "waits"
        steps.append((word, sum(new.pem in each for each in world.trusted), len(replica.pairs)))
    # After the third, API servers need a moment to learn of it.
    waits, signs = [("waits", 0, 1), *[("waits", 6, 1)] * 3], [("signs", 6, 1), *[("signs", 6, 2)] * 3]
    assert steps == waits + signs
    assert [retired.certificate for retired in world.state.retired] == [old.certificate]
    assert all(old.pem in each for each in world.trusted), "others may still serve with it"
    assert world.secret and not world.secret.is_rotation_requested
    assert replica.rotation.authority_end == world.issuer.certificate.not_valid_after_utc


@pytest.mark.control("rotation-breaks-calls")
async def test_the_old_ca_goes_after_the_overlap() -> None:
    world = await settled(2)
    world.ask()
    await world.rotated()
    await world.wait(7)
    assert len(world.state.retired) == 1
    await world.wait(1)
    assert not world.state.retired
    assert world.trusted == [{world.issuer.pem}] * 6
    assert any(replica.log.said(RotationEvent.CAS_REMOVED) for replica in world.replicas)


async def test_a_leaf_is_renewed_at_two_thirds_of_its_life_and_never_served_expired() -> None:
    world = await settled()
    (replica,) = world.replicas
    world.clock.unix = (replica.leaf_end - memory.TERMS.leaf / 3).timestamp() - 1
    for pairs in (1, 2):
        await replica.step()
        assert len(replica.pairs) == pairs
        world.clock.advance(1)
    assert replica.leaf_end == world.clock.date - timedelta(seconds=1) + memory.TERMS.leaf


@pytest.mark.parametrize("jump", [-400 * DAY, -2 * DAY, -600.0, 5 * DAY, 8 * DAY, 370 * DAY, 4000 * DAY])
async def test_the_wall_clock_jumps(jump: float) -> None:
    """There and back; after a look or two all is well again."""
    world = await settled(3)
    for seconds in (jump, -jump):
        world.clock.unix += seconds
        for _ in range(20):
            for replica in world.replicas:
                await replica.step()
            world.clock.advance(GRACE_SECONDS)
        await world.settle()
        assert all(replica.leaf_end > world.clock.date for replica in world.replicas)
        assert len(world.state.retired) <= MOST_RETIRED


async def test_one_replica_whose_clock_is_wrong_harms_no_other() -> None:
    world = await settled(2)
    wrong = world.start()
    for _ in range(40):
        world.clock.unix += 4000 * DAY
        await wrong.step()
        world.clock.unix -= 4000 * DAY
        for replica in world.replicas[:2]:
            await replica.step()
        for replica in world.replicas[:2]:
            assert replica.leaf
            assert all(verifies(pem, replica.leaf, memory.HOST, world.clock.date) for pem in world.bundles())
        world.clock.advance(30)


async def test_replicas_that_disagree_about_the_service_stay_verifiable() -> None:
    """A rollout that renames it: each is called by the name that it believes in, until the other has gone."""
    world = await settled()
    world.start(replace(memory.TERMS, hosts=("renamed.kubevirt-webhook.svc",)))
    await world.settle()
    assert all(replica.leaf for replica in world.replicas)
    issuer = world.issuer
    for _ in range(4):
        world.clock.advance(GRACE_SECONDS)
        await world.settle()
    assert world.issuer == issuer, "they don't fight"
    await world.wait(5)
    await world.settle()
    assert all(len(replica.pairs) > 1 for replica in world.replicas), "each gets its leaves in its turn"
    del world.replicas[0]
    await world.wait(5)
    await world.settle()
    issuer = world.issuer
    await world.wait(30)
    assert world.issuer == issuer


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_configurations_that_come_later(missing: int) -> None:
    world = CertsWorld(configurations=NAMES[missing:])
    replica = world.start()
    await world.settle()
    assert replica.leaf
    lacking = tuple(f"{name} does not exist yet" for name in NAMES) if missing == 3 else ()
    assert replica.rotation.waiting_for() == lacking
    assert replica.log.said(RotationEvent.CONFIGURATIONS_MISSING) == [{"names": NAMES[:missing]}]
    for name in NAMES[:missing]:
        world.overwrite(name, {})
    await replica.step()
    await world.settle()
    assert (len(world.trusted), replica.rotation.waiting_for()) == (6, ())


async def test_run_pauses_between_looks() -> None:
    world = CertsWorld()
    replica = world.start()

    sleep = AsyncMock(side_effect=[None] * 5)
    world.clock.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(StopAsyncIteration):
        await replica.rotation.run()
    seconds = [call.args[0] for call in sleep.await_args_list]
    assert max(seconds) <= 6, "the wall clock is looked at every few seconds"
    assert min(seconds) > 0.1


class TestRepairs:
    """Secrets, caBundles and leaves that others edited or deleted are repaired, in the usual order."""

    @pytest.mark.control("ca-secret-edited")
    @pytest.mark.parametrize("edit", memory.EDITS)
    async def test_a_secret_edited_by_hand_heals_in_the_same_order(self, edit: str) -> None:
        world = await settled(3)
        world.clock.advance(GRACE_SECONDS)
        before = [replica.leaf for replica in world.replicas]
        world.edit(memory.editing(edit))
        if edit == "other hosts":
            world.start()  # to those who serve already it doesn't matter
        await world.settle()  # which asserts that everybody stays verifiable throughout
        assert world.issuer.unusable([memory.HOST], world.clock.date) == ""
        assert world.state.incoming is None
        if edit != "half next":
            assert [replica.leaf for replica in world.replicas][:3] != before
        if edit not in ("another CA", "emptied", "other hosts", "expired CA"):
            told = [fields["why"] for replica in world.replicas for fields in replica.log.said(RotationEvent.INVALID)]
            assert 1 <= len(told) <= 6
        late = world.start()
        await world.settle()
        assert late.leaf

    @pytest.mark.control("ca-secret-edited")
    async def test_a_deleted_secret_heals_and_a_second_time_too(self) -> None:
        world = await settled(3)
        for _ in range(2):
            world.clock.advance(GRACE_SECONDS)
            old = world.issuer
            world.secret = None
            await world.settle()
            assert world.issuer != old
            assert world.state.incoming is None
            assert old.certificate in [retired.certificate for retired in world.state.retired]
        assert sum(len(replica.log.said(RotationEvent.MISSING)) for replica in world.replicas) >= 2

    @pytest.mark.parametrize("rotations", [1, 3])
    async def test_etcd_is_restored_from_before_a_rotation(self, rotations: int) -> None:
        """The Secret and the configurations are old, and every replica serves with a CA that they do not know."""
        world = await settled(3)
        saved = world.secret, dict(world.configurations)
        for _ in range(rotations):
            world.clock.advance(GRACE_SECONDS)
            world.ask()
            await world.rotated()
        world.secret, world.configurations = saved[0], dict(saved[1])
        # A look of one replica makes the other ones' CA trusted, too: the write to the Secret, then to the caBundles.
        await world.replicas[0].step()
        await world.replicas[0].step()
        world.check()
        await world.settle()
        assert world.state.issuer
        late = world.start()
        await world.settle()
        assert late.leaf

    async def test_a_secret_full_of_retired_cas_is_read_in_part(self) -> None:
        world = await settled()
        retired = {"certificate": SELF_SIGNED.decode(), "until": memory.START.isoformat()}
        world.edit(lambda data: data.update({"retired.json": json.dumps([retired] * 1000).encode()}))
        assert len(world.state.retired) <= MOST_RETIRED

    async def test_a_secret_that_is_deleted_all_the_time_makes_no_endless_bundle(self) -> None:
        world = await settled()
        for _ in range(3 * MOST_RETIRED):
            world.secret = None
            world.clock.advance(GRACE_SECONDS)
            await world.settle(6)
        assert all(len(each) <= MOST_RETIRED + 2 for each in world.trusted)

    @pytest.mark.control("ca-bundles-overwritten")
    async def test_bundles_that_mean_the_same_stay_and_those_taken_away_come_back(self) -> None:
        world = await settled()
        same = dict.fromkeys(memory.ENTRIES, b"# a comment\n" + world.issuer.pem + b"\n" + world.issuer.pem)
        world.overwrite(NAMES[0], same)
        await world.settle()
        found = world.configurations[NAMES[0]]
        assert found and found.bundles == same
        world.overwrite(NAMES[1], {})
        await world.replicas[0].step()
        world.check()

    @pytest.mark.control("foreign-ca-in-a-bundle")
    @pytest.mark.parametrize("name", memory.ODD)
    async def test_a_certificate_that_cannot_be_read_leaves_a_bundle_and_stops_nothing(self, name: str) -> None:
        """The API server may trust it, as one of version 2."""
        world = await settled()
        world.overwrite(NAMES[0], dict.fromkeys(memory.ENTRIES, world.issuer.pem + memory.odd(name)[CA_CRT]))
        late = world.start()
        await world.settle()
        assert late.leaf and world.bundles() == [world.state.trust_bundle()] * 6

    async def test_a_configuration_that_cannot_be_written_stops_the_rotation_not_the_service(self) -> None:
        world = await settled(2)
        old = world.issuer
        world.at = memory.reject(f"write {NAMES[1]}")
        world.ask()
        await world.settle()
        assert world.issuer == old
        assert world.state.incoming
        await world.wait(6)
        assert [len(replica.pairs) for replica in world.replicas] == [2, 2], "the CA of before signs on"
        assert world.replicas[0].rotation.failures
        assert world.replicas[0].log.said(RotationEvent.RETRYING)[-1] == {"why": f"write {NAMES[1]} was refused"}
        world.at = lambda _: None
        await world.rotated()

    async def test_a_leaf_that_nobody_would_accept_is_not_served(self, golden: Golden) -> None:
        """The clock jumps between the look at the Secret and the swap: the new leaf is expired before it serves."""
        world = await settled()
        (replica,) = world.replicas
        serving = replica.leaf
        world.clock.unix += 5 * DAY

        def at(call: str) -> None:
            if call == "read secret":
                world.clock.unix += 8 * DAY

        world.at = at
        for failures in (1, 2):
            await replica.step()
            assert (replica.leaf, replica.rotation.failures) == (serving, failures)
        (retrying,) = replica.log.said(RotationEvent.RETRYING)
        golden(retrying["why"])
        world.at = lambda _: None
        await world.settle()
        assert replica.leaf != serving

    @pytest.mark.parametrize("steps", range(1, 6))
    @pytest.mark.parametrize("days", [0, 30])
    async def test_without_a_secret_and_a_leaf_there_is_a_ca_at_once(self, steps: int, days: int) -> None:
        """As when an installation is removed and made again while a replica goes on, or a clock jumps then."""
        world = CertsWorld()
        replica = world.start()
        for _ in range(steps):
            await replica.step()
        world.secret = None
        for name in NAMES:
            world.overwrite(name, {})
        world.clock.unix += days * DAY
        for _ in range(10):
            await replica.step()
            world.clock.advance(5)
        assert replica.leaf
        world.check()

    async def test_while_it_serves_a_secret_that_is_deleted_again_gets_its_ca_after_the_grace(self) -> None:
        world = await settled()
        for _ in range(2):
            world.secret = None
            await world.settle()
        assert world.state.issuer is None
        world.clock.advance(GRACE_SECONDS)
        await world.settle()
        assert world.state.issuer

    async def test_no_bundle_no_leaf_at_the_first_start(self) -> None:
        world = CertsWorld()
        replica = world.start()
        world.at = memory.reject(f"write {NAMES[2]}")
        await world.settle()
        assert replica.leaf is None
        assert replica.rotation.waiting_for() == (f"the serving certificate: write {NAMES[2]} was refused",)

    async def test_a_pair_that_is_refused_leaves_the_one_before(self) -> None:
        world = await settled()
        (replica,) = world.replicas
        serving = replica.leaf

        def refused(pair: Pair) -> None:
            raise CertificateError("OpenSSL refuses the pair")

        replica.rotation.serve = refused
        world.clock.advance(6 * DAY)
        await replica.step()
        assert (replica.leaf, replica.rotation.failures) == (serving, 1)


def run(work: Coroutine[Any, Any, object]) -> None:
    """A coroutine that awaits nothing that is not ready, inside another."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


async def begun(what: str) -> CertsWorld:
    """A world whose newest replica has something to do."""
    world = CertsWorld() if what == "first start" else await settled(2)
    world.clock.advance(GRACE_SECONDS)
    if what in ("rotation", "pruned"):
        world.ask()
    elif what == "deleted":
        world.secret = None
    elif what == "edited":
        world.edit(memory.editing("without key"))
    if what == "pruned":
        await world.settle()
        await world.wait(7)
    victim = world.start()
    if what == "pruned":
        await victim.step()
        await victim.step()
        world.clock.advance(3600)
    return world


@pytest.mark.repeats
class TestInterruptions:
    """Replicas that stop or sleep anywhere in a rotation."""

    @pytest.mark.control("ca-secret-edited")
    @pytest.mark.parametrize("asleep", range(1, 12))
    async def test_a_sleeper_cannot_undo_what_others_did(self, asleep: int) -> None:
        """A replica that falls asleep at any call, for as long as a whole rotation takes, and then goes on."""
        world = await settled(2)
        sleeper, other = world.replicas
        world.ask()
        calls = 0

        async def rotate() -> None:
            for _ in range(12):
                world.clock.advance(2)
                await other.step()

        def at(call: str) -> None:
            nonlocal calls
            calls += 1
            if calls == asleep:
                world.at = lambda _: None
                run(rotate())

        world.at = at
        for _ in range(6):
            await sleeper.step()
            world.check()
        assert calls == asleep
        await world.settle()

    @pytest.mark.parametrize("failure", [memory.Killed(), NotNow("no answer")], ids=["killed", "fails"])
    @pytest.mark.parametrize("begin", ["first start", "rotation", "deleted", "edited", "pruned"])
    async def test_stopped_at_every_call_and_resumed_by_another(self, begin: str, failure: BaseException) -> None:
        """Before and after every call's effect; the invariant holds at each of them and after."""
        prepared, calls = await begun(begin), 0
        while True:
            world = copy.deepcopy(prepared)
            victim = world.replicas[-1]
            left, stopped = calls, False

            def at(call: str, world: CertsWorld = world) -> None:
                nonlocal left, stopped
                world.check()
                if not left and not stopped:
                    stopped = True
                    raise failure
                left -= 1

            world.at = at
            for _ in range(8):
                world.clock.advance(5)
                try:
                    await victim.step()
                except memory.Killed:
                    world.replicas.remove(victim)
                    break
                world.check()
            world.at = lambda _: None
            if not stopped:
                break
            world.start()
            await world.settle()
            assert all(replica.leaf for replica in world.replicas)
            assert world.state.incoming is None
            assert begin != "pruned" or world.state.retired == ()
            calls += 1
        assert calls > 15


class RotationCluster(RuleBasedStateMachine):
    """Replicas come, go and look in any order, while people and their tools do what they do.

    The invariant never breaks but by a foreign write of a caBundle or a jump of the clock beyond a certificate's life,
    and then until the next look of everybody.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = CertsWorld()
        self.disturbed = False

    @initialize(replicas=st.integers(1, 3))
    def begin(self, replicas: int) -> None:
        for _ in range(replicas):
            self.world.start()

    @rule(which=st.integers(0, 3), times=st.integers(1, 4))
    def look(self, which: int, times: int) -> None:
        replica = self.world.replicas[which % len(self.world.replicas)]
        for _ in range(times):
            self.world.clock.advance(4)
            run(replica.step())

    @rule(which=st.integers(0, 3), after=st.integers(0, 12))
    def die_and_begin_again(self, which: int, after: int) -> None:
        replica = self.world.replicas.pop(which % len(self.world.replicas))
        left = after

        def at(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise memory.Killed

        self.world.at = at
        try:
            for _ in range(4):
                run(replica.step())
        except memory.Killed:
            pass
        finally:
            self.world.at = lambda _: None
        self.world.start()

    @precondition(lambda self: self.world.secret is not None)
    @rule()
    def ask(self) -> None:
        self.world.ask()

    @rule(edit=st.sampled_from(sorted(memory.EDITS)))
    def edit(self, edit: str) -> None:
        if self.world.secret and (CA_KEY in self.world.secret.data or edit != "without key"):
            self.world.edit(memory.editing(edit))

    @rule()
    def delete(self) -> None:
        self.world.secret = None

    @rule(name=st.sampled_from(NAMES), content=st.sampled_from([b"", b"nonsense", SELF_SIGNED]))
    def overwrite(self, name: str, content: bytes) -> None:
        self.world.overwrite(name, dict.fromkeys(memory.ENTRIES, content))
        self.disturbed = True

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.world.configurations[name] = None

    @rule(name=st.sampled_from(NAMES))
    def reapply(self, name: str) -> None:
        """As server-side apply does it: caBundles as they were, in another version."""
        if found := self.world.configurations[name]:
            self.world.overwrite(name, found.bundles)

    @rule(hours=st.integers(1, 40))
    def wait(self, hours: int) -> None:
        for _ in range(hours):
            self.world.clock.advance(3600)
            for replica in self.world.replicas:
                run(replica.step())

    @rule(days=st.sampled_from([-500, -30, -1, 1, 6, 8, 200, 400]))
    def jump(self, days: int) -> None:
        self.world.clock.unix += days * DAY
        self.disturbed = True

    @rule()
    def settle(self) -> None:
        """Everybody looks, for as long as the grace lasts that jumps of the clock are given."""
        for _ in range(4):
            for _ in range(8):
                self.world.clock.advance(4)
                for replica in self.world.replicas:
                    run(replica.step())
            self.world.clock.advance(GRACE_SECONDS)
        self.disturbed = False
        assert all(replica.leaf for replica in self.world.replicas)
        self.world.check()

    @invariant()
    def everybody_can_be_verified(self) -> None:
        if not self.disturbed:
            self.world.check()

    @invariant()
    def bundles_stay_small(self) -> None:
        assert all(len(each) <= MOST_RETIRED + 2 for each in self.world.trusted)


TestCluster = pytest.mark.repeats(RotationCluster.TestCase)
TestCluster.settings = settings(max_examples=25, stateful_step_count=20)
