"""Replicas that stop or sleep anywhere in a rotation, and any sequence of what can happen to a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs.rotation import GRACE_SECONDS, NotNow
from certs.source import self_signed
from certs.state import CA_KEY, MOST_RETIRED
from tests.certs.edits import EDITS, without_key
from tests.certs.memory import ENTRIES, HOST, NAMES, CertsWorld, Killed, RotatingReplica
from tests.certs.rotating import DAY, settled, state, trusted

pytestmark = pytest.mark.repeats


async def test_a_sleeper_cannot_undo_what_others_did() -> None:
    """A replica that falls asleep at any call, for as long as a whole rotation takes, and then goes on."""
    for asleep in range(1, 12):
        world = await settled(2)
        sleeper, other = world.replicas
        world.ask()
        calls = 0

        async def rotate(world: CertsWorld, other: RotatingReplica) -> None:
            for _ in range(12):
                world.clock.advance(2)
                await other.step()

        def at(call: str, world: CertsWorld = world, other: RotatingReplica = other, asleep: int = asleep) -> None:
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


@pytest.mark.parametrize("failure", [Killed(), NotNow("no answer")], ids=["killed", "fails"])
@pytest.mark.parametrize("begin", ["first start", "rotation", "deleted", "edited", "pruned"])
async def test_stopped_at_every_call_and_resumed_by_another(begin: str, failure: BaseException) -> None:
    """Before and after every call's effect; the invariant holds at each of them and after."""
    calls = 0
    while True:
        world = CertsWorld() if begin == "first start" else await settled(2)
        world.clock.advance(GRACE_SECONDS)
        if begin == "rotation":
            world.ask()
        elif begin == "deleted":
            world.secret = None
        elif begin == "edited":
            world.edit(without_key)
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
        if self.world.secret and (CA_KEY in self.world.secret.data or edit is not without_key):
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
        """Advances the clock; every replica checks now and then."""
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


TestCluster = RotationCluster.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
