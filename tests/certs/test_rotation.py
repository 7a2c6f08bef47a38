"""The rotation, with the API server in memory: its order, and that no stop, race or foreign hand breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs.authority import Authority, bundle, parse_bundle, verifies
from certs.events import RotationEvent
from certs.rotation import GRACE_SECONDS, SPREAD_SECONDS, NotNow
from certs.source import CertificateError, Pair, self_signed
from certs.state import CA_CRT, CA_KEY, MOST_RETIRED, NEXT_KEY, RETIRED, ROTATED, CaState
from tests.certs.memory import ENTRIES, HOST, NAMES, START, TERMS, Killed, Replica, World, reject

DAY = 86_400.0


def trusted(world: World) -> list[set[bytes]]:
    """The certificates of every caBundle."""
    found = [each for each in world.configurations.values() if each]
    return [{bundle([ca]) for ca in parse_bundle(pem)} for each in found for pem in each.bundles.values()]


def state(world: World) -> CaState:
    assert world.secret
    found, problems = CaState.decode(world.secret.data, world.clock.date)
    assert problems == ()
    return found


async def settled(replicas: int = 1) -> World:
    world = World()
    for _ in range(replicas):
        world.start()
    await world.settle()
    assert all(replica.leaf for replica in world.replicas)
    world.clock.advance(GRACE_SECONDS)
    return world


async def rotated(world: World, since: Authority | None) -> None:
    """A look of each replica after the other, until another CA signs and all is quiet."""
    await world.settle()
    assert state(world).issuer != since
    assert state(world).incoming is None


async def test_first_start_of_many_at_once() -> None:
    world = World()
    replicas = [world.start() for _ in range(5)]
    for _ in range(12):
        await asyncio.gather(*(replica.step() for replica in replicas))
        world.check()

    assert len({replica.rotation.rotated for replica in replicas}) == 1
    assert trusted(world) == [{state(world).issuer.pem}] * 6  # type: ignore[union-attr]
    assert [replica.rotation.waiting_for() for replica in replicas] == [()] * 5
    assert all(len(replica.pairs) == 1 for replica in replicas)


async def test_nothing_is_written_while_nothing_changes() -> None:
    world = await settled(3)
    before = world.writes
    world.clock.advance(DAY)
    await world.settle()

    assert world.writes == before
    assert [len(replica.pairs) for replica in world.replicas] == [1, 1, 1]


async def test_order_of_a_rotation() -> None:
    world = await settled()
    (replica,) = world.replicas
    old = state(world).issuer
    world.ask()
    steps: list[tuple[str, int, int]] = []
    for _ in range(8):
        await replica.step()
        world.clock.advance(SPREAD_SECONDS / 2)
        world.check()
        now = state(world)
        new = now.incoming or now.issuer
        assert new
        steps.append(
            (
                "signs" if now.issuer == new else "waits",
                sum(new.pem in each for each in trusted(world)),
                len(replica.pairs),
            )
        )

    assert old
    assert steps[2:4] == [("waits", 6, 1)] * 2, "API servers need a moment to learn of it"
    assert [*steps[:2], *steps[4:]] == [
        ("waits", 0, 1),
        ("waits", 6, 1),
        ("signs", 6, 1),
        ("signs", 6, 2),
        ("signs", 6, 2),
        ("signs", 6, 2),
    ]
    assert [retired.certificate for retired in state(world).retired] == [old.certificate]
    assert all(old.pem in each for each in trusted(world)), "others may still serve with it"
    assert world.secret
    assert not world.secret.is_rotation_requested


async def test_the_old_ca_goes_after_the_overlap() -> None:
    world = await settled(2)
    old = state(world).issuer
    world.ask()
    await rotated(world, old)
    await world.wait(7)
    assert len(state(world).retired) == 1
    await world.wait(1)

    assert state(world).retired == ()
    assert trusted(world) == [{state(world).issuer.pem}] * 6  # type: ignore[union-attr]
    assert world.replicas[0].log.said(RotationEvent.CAS_REMOVED) or world.replicas[1].log.said(
        RotationEvent.CAS_REMOVED
    )


async def test_a_leaf_is_renewed_at_two_thirds_of_its_life_and_never_served_expired() -> None:
    world = await settled()
    (replica,) = world.replicas
    issued = replica.rotation.leaf_end
    assert issued
    world.clock.unix = (issued - TERMS.leaf / 3).timestamp() - 1
    await replica.step()
    assert len(replica.pairs) == 1
    world.clock.advance(1)
    await replica.step()
    assert len(replica.pairs) == 2
    assert replica.rotation.leaf_end == world.clock.date + TERMS.leaf


async def test_a_ca_is_renewed_at_two_thirds_of_its_life() -> None:
    world = await settled(2)
    first = state(world).issuer
    await world.wait(242)
    assert state(world).issuer == first
    await world.wait(3)
    assert state(world).issuer != first
    assert all(replica.rotation.authority_end > START + timedelta(days=500) for replica in world.replicas)  # type: ignore[operator]


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
        assert all(replica.rotation.leaf_end > world.clock.date for replica in world.replicas)  # type: ignore[operator]
        assert len(state(world).retired) <= MOST_RETIRED


async def test_one_replica_whose_clock_is_wrong_harms_no_other() -> None:
    world = await settled(2)
    wrong = world.start()
    good = world.replicas[:2]
    for _ in range(40):
        world.clock.unix += 4000 * DAY
        await wrong.step()
        world.clock.unix -= 4000 * DAY
        for replica in good:
            await replica.step()
        for replica in good:
            for configuration in world.configurations.values():
                assert configuration
                assert replica.leaf
                for pem in configuration.bundles.values():
                    assert verifies(pem, replica.leaf, HOST, world.clock.date)
        world.clock.advance(30)


async def test_replicas_that_disagree_about_the_service_stay_verifiable() -> None:
    """A rollout that renames it: each is called by the name that it believes in, until the other has gone."""
    world = await settled()
    world.start(replace(TERMS, hosts=("renamed.kubevirt-webhook.svc",)))
    await world.settle()
    assert all(replica.leaf for replica in world.replicas)
    issuer = state(world).issuer
    for _ in range(4):
        world.clock.advance(GRACE_SECONDS)
        await world.settle()
    assert state(world).issuer == issuer, "they don't fight"
    await world.wait(5)
    await world.settle()
    assert all(len(replica.pairs) > 1 for replica in world.replicas), "each gets its leaves in its turn"
    del world.replicas[0]
    await world.wait(5)
    await world.settle()
    issuer = state(world).issuer
    await world.wait(30)
    assert state(world).issuer == issuer


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_configurations_that_come_later(missing: int) -> None:
    world = World(configurations=NAMES[missing:])
    replica = world.start()
    await world.settle()
    assert replica.leaf
    if missing == 3:
        assert replica.rotation.waiting_for() == tuple(f"{name} does not exist yet" for name in NAMES)
    else:
        assert replica.rotation.waiting_for() == ()
    assert replica.log.said(RotationEvent.CONFIGURATIONS_MISSING) == [{"names": NAMES[:missing]}]
    for name in NAMES[:missing]:
        world.create(name)
    await replica.step()
    await world.settle()

    assert len(trusted(world)) == 6
    assert replica.rotation.waiting_for() == ()


def _garbage(data: dict[str, bytes]) -> None:
    data.update({CA_CRT: b"\xff\x00", CA_KEY: b"no", RETIRED: b"{", ROTATED: b"yesterday"})


def _without_key(data: dict[str, bytes]) -> None:
    del data[CA_KEY]


def _mismatch(data: dict[str, bytes]) -> None:
    data[CA_KEY] = Authority.new([HOST], START, timedelta(days=1)).key_pem


def _expired(data: dict[str, bytes]) -> None:
    old = Authority.new([HOST], START - timedelta(days=9), timedelta(days=1))
    data.update({CA_CRT: old.pem, CA_KEY: old.key_pem})


def _another_ca(data: dict[str, bytes]) -> None:
    other = Authority.new([HOST], START, timedelta(days=300))
    data.update({CA_CRT: other.pem, CA_KEY: other.key_pem})


def _other_hosts(data: dict[str, bytes]) -> None:
    other = Authority.new(["elsewhere.svc"], START, timedelta(days=300))
    data.update({CA_CRT: other.pem, CA_KEY: other.key_pem})


def _no_authority(data: dict[str, bytes]) -> None:
    pair = self_signed([HOST], START)
    data.update({CA_CRT: pair.certificate, CA_KEY: pair.key})


def _emptied(data: dict[str, bytes]) -> None:
    data.clear()


def _half_next(data: dict[str, bytes]) -> None:
    data[NEXT_KEY] = b"?"


EDITS = [
    _garbage,
    _without_key,
    _mismatch,
    _expired,
    _another_ca,
    _other_hosts,
    _no_authority,
    _emptied,
    _half_next,
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
async def test_a_secret_edited_by_hand_heals_in_the_same_order(edit: Callable[[dict[str, bytes]], None]) -> None:
    world = await settled(3)
    world.clock.advance(GRACE_SECONDS)
    before = [replica.leaf for replica in world.replicas]
    world.edit(edit)
    if edit is _other_hosts:
        world.start()  # to those who serve already it doesn't matter
    await world.settle()  # which asserts that everybody stays verifiable throughout

    healed = state(world)
    assert healed.issuer
    assert healed.issuer.unusable([HOST], world.clock.date) == ""
    assert healed.incoming is None
    if edit is not _half_next:
        assert [replica.leaf for replica in world.replicas][:3] != before
    if edit not in (_another_ca, _emptied, _other_hosts, _expired):
        told = [fields["why"] for replica in world.replicas for fields in replica.log.said(RotationEvent.INVALID)]
        assert told
        assert len(told) <= 6
    late = world.start()
    await world.settle()
    assert late.leaf


async def test_a_deleted_secret_heals_and_a_second_time_too() -> None:
    world = await settled(3)
    for _ in range(2):
        world.clock.advance(GRACE_SECONDS)
        old = state(world).issuer
        world.secret = None
        await rotated(world, old)
    assert old
    assert old.certificate in [retired.certificate for retired in state(world).retired]
    assert sum(len(replica.log.said(RotationEvent.MISSING)) for replica in world.replicas) >= 2


async def test_a_secret_that_is_deleted_all_the_time_makes_no_endless_bundle() -> None:
    world = await settled()
    for _ in range(3 * MOST_RETIRED):
        world.secret = None
        world.clock.advance(GRACE_SECONDS)
        await world.settle(6)
    assert all(len(each) <= MOST_RETIRED + 2 for each in trusted(world))


async def test_the_ca_of_another_way_of_serving_is_kept_for_an_overlap() -> None:
    """A rollout from mounted certificates: replicas of before serve with a CA that we don't know."""
    world = World()
    theirs = self_signed([HOST], START, timedelta(days=90))
    for name in NAMES:
        world.overwrite(name, dict.fromkeys(ENTRIES, theirs.certificate))
    world.start()
    await world.settle()
    assert all(theirs.certificate in each for each in trusted(world))
    await world.wait(8)
    assert not any(theirs.certificate in each for each in trusted(world))


async def test_bundles_that_mean_the_same_stay() -> None:
    world = await settled()
    found = world.configurations[NAMES[0]]
    assert found
    same = {entry: b"# a comment\n" + pem + b"\n" + pem for entry, pem in found.bundles.items()}
    world.overwrite(NAMES[0], same)
    await world.settle()
    found = world.configurations[NAMES[0]]
    assert found
    assert found.bundles == same


async def test_bundles_taken_away_come_back_at_the_next_look() -> None:
    world = await settled()
    world.overwrite(NAMES[1], {})
    await world.replicas[0].step()
    world.check()


async def test_a_configuration_that_cannot_be_written_stops_the_rotation_not_the_service() -> None:
    world = await settled(2)
    old = state(world).issuer
    world.at = reject(f"write {NAMES[1]}")
    world.ask()
    await world.settle()
    assert state(world).issuer == old
    assert state(world).incoming
    await world.wait(6)
    assert [len(replica.pairs) for replica in world.replicas] == [2, 2], "the CA of before signs on"
    assert world.replicas[0].rotation.failures
    assert world.replicas[0].log.said(RotationEvent.RETRYING)[-1] == {"why": f"write {NAMES[1]} was refused"}

    world.at = lambda _: None
    await rotated(world, old)


async def test_a_leaf_that_nobody_would_accept_is_not_served() -> None:
    """The clock jumps between the look at the Secret and the swap: the new leaf is expired before it serves."""
    world = await settled()
    (replica,) = world.replicas
    serving = replica.leaf
    world.clock.unix += 5 * DAY

    def at(call: str) -> None:
        if call == "read secret":
            world.clock.unix += 8 * DAY

    world.at = at
    await replica.step()
    assert replica.leaf == serving
    assert "do not verify the new certificate" in replica.log.said(RotationEvent.RETRYING)[-1]["why"]
    world.at = lambda _: None
    await world.settle()
    assert replica.leaf != serving


async def test_when_everything_is_gone_within_the_grace_it_waits_and_heals() -> None:
    world = World()
    replica = world.start()
    await world.settle()
    world.secret = None
    for name in NAMES:
        world.create(name)
    world.clock.unix += 30 * DAY
    before = world.writes
    await replica.step()
    assert world.writes == before, "it made a CA a moment ago, and knows of none that is valid"
    world.clock.advance(GRACE_SECONDS)
    for _ in range(8):
        await replica.step()
        world.clock.advance(5)
    world.check()
    assert state(world).issuer


async def test_no_bundle_no_leaf_at_the_first_start() -> None:
    world = World()
    replica = world.start()
    world.at = reject(f"write {NAMES[2]}")
    await world.settle()
    assert replica.leaf is None
    assert replica.rotation.waiting_for() == (f"the serving certificate: write {NAMES[2]} was refused",)


async def test_a_pair_that_is_refused_leaves_the_one_before() -> None:
    world = await settled()
    (replica,) = world.replicas
    serving = replica.leaf

    def refused(pair: Pair) -> None:
        raise CertificateError("OpenSSL refuses the pair")

    object.__setattr__(replica.rotation, "_serve", refused)
    world.clock.advance(6 * DAY)
    await replica.step()
    assert replica.leaf == serving
    assert replica.rotation.leaf_end == serving.not_valid_after_utc  # type: ignore[union-attr]
    assert replica.rotation.failures == 1


async def test_a_sleeper_cannot_undo_what_others_did() -> None:
    """A replica that falls asleep at any call, for as long as a whole rotation takes, and then goes on."""
    for asleep in range(1, 12):
        world = await settled(2)
        sleeper, other = world.replicas
        world.ask()
        calls = 0

        async def rotate(world: World, other: Replica) -> None:
            for _ in range(12):
                world.clock.advance(2)
                await other.step()

        def at(call: str, world: World = world, other: Replica = other, asleep: int = asleep) -> None:
            nonlocal calls
            calls += 1
            if calls == asleep:
                world.at = lambda _: None
                _run(rotate(world, other))

        world.at = at
        for _ in range(6):
            await sleeper.step()
            world.check()
        assert calls == asleep
        await world.settle()


def _run(work: object) -> None:
    """A coroutine that awaits nothing that is not ready, inside another."""
    try:
        work.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("it waited")


@pytest.mark.parametrize(
    "failure", [Killed(), NotNow("the API server did not answer in time")], ids=["killed", "fails"]
)
@pytest.mark.parametrize("begin", ["first start", "rotation", "deleted", "edited", "pruned"])
async def test_stopped_at_every_call_and_resumed_by_another(begin: str, failure: BaseException) -> None:
    """Before and after every call's effect; the invariant holds at each of them and after."""
    calls = 0
    while True:
        world = World() if begin == "first start" else await settled(2)
        world.clock.advance(GRACE_SECONDS)
        if begin == "rotation":
            world.ask()
        elif begin == "deleted":
            world.secret = None
        elif begin == "edited":
            world.edit(_without_key)
        elif begin == "pruned":
            world.ask()
            await world.settle()
            await world.wait(7)
        left = calls
        stopped = False
        victim = world.start()
        if begin == "pruned":
            await victim.step()
            await victim.step()
            world.clock.advance(3600)

        def at(call: str, world: World = world) -> None:
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
            except Killed:
                world.replicas.remove(victim)
                break
            world.check()
        world.at = lambda _: None
        if not stopped:
            break
        world.start()
        await world.settle()
        assert all(replica.leaf for replica in world.replicas)
        assert state(world).incoming is None
        assert begin != "pruned" or state(world).retired == ()
        calls += 1
    assert calls > 15


async def test_run_pauses_between_looks() -> None:
    world = World()
    replica = world.start()

    class Enough(Exception):  # noqa: N818
        pass

    async def sleep(seconds: float) -> None:
        world.clock.slept.append(seconds)
        if len(world.clock.slept) == 6:
            raise Enough

    world.clock.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(Enough):
        await replica.rotation.run()
    assert max(world.clock.slept) <= 6, "the wall clock is looked at every few seconds"
    assert min(world.clock.slept) > 0.1


class Cluster(RuleBasedStateMachine):
    """Replicas come, go and look in any order, while people and their tools do what they do.

    The invariant never breaks but by a foreign write of a caBundle or a jump of the clock beyond a certificate's life,
    and then until the next look of everybody.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
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
            _run(replica.step())

    @rule(which=st.integers(0, 3), after=st.integers(0, 12))
    def die_and_begin_again(self, which: int, after: int) -> None:
        replica = self.world.replicas.pop(which % len(self.world.replicas))
        left = after

        def at(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        self.world.at = at
        try:
            for _ in range(4):
                _run(replica.step())
        except Killed:
            pass
        finally:
            self.world.at = lambda _: None
        self.world.start()

    @precondition(lambda self: self.world.secret is not None)
    @rule()
    def ask(self) -> None:
        self.world.ask()

    @rule(edit=st.sampled_from(EDITS))
    def edit(self, edit: Callable[[dict[str, bytes]], None]) -> None:
        if self.world.secret and (CA_KEY in self.world.secret.data or edit is not _without_key):
            self.world.edit(edit)

    @rule()
    def delete(self) -> None:
        self.world.secret = None

    @rule(name=st.sampled_from(NAMES), content=st.sampled_from([b"", b"nonsense", self_signed([HOST]).certificate]))
    def overwrite(self, name: str, content: bytes) -> None:
        self.world.overwrite(name, dict.fromkeys(ENTRIES, content))
        self.disturbed = True

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.world.configurations[name] = None

    @rule(name=st.sampled_from(NAMES))
    def reapply(self, name: str) -> None:
        """As server-side apply does it: entries in another order, caBundles as they were."""
        found = self.world.configurations[name]
        if found:
            self.world.overwrite(name, dict(reversed(list(found.bundles.items()))))

    @rule(hours=st.integers(1, 40))
    def wait(self, hours: int) -> None:
        """Time in which everybody looks now and then."""
        for _ in range(hours):
            self.world.clock.advance(3600)
            for replica in self.world.replicas:
                _run(replica.step())

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
                    _run(replica.step())
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
        assert all(len(each) <= MOST_RETIRED + 2 for each in trusted(self.world))


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
