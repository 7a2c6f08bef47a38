"""The rotation, with the API server in memory: its order, and that no stop, race or foreign hand breaks it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from certs.authority import verifies
from certs.rotation import GRACE_SECONDS, SPREAD_SECONDS, RotationEvent
from certs.state import MOST_RETIRED
from tests.certs.memory import HOST, NAMES, START, TERMS, CertsWorld
from tests.certs.rotating import DAY, rotated, settled, state, trusted


async def test_first_start_of_many_at_once() -> None:
    world = CertsWorld()
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
        *(("waits", 0, 1), ("waits", 6, 1), ("signs", 6, 1), ("signs", 6, 2), ("signs", 6, 2), ("signs", 6, 2))
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
    issued = replica.leaf_end
    assert issued
    world.clock.unix = (issued - TERMS.leaf / 3).timestamp() - 1
    await replica.step()
    assert len(replica.pairs) == 1
    world.clock.advance(1)
    await replica.step()
    assert len(replica.pairs) == 2
    assert replica.leaf_end == world.clock.date + TERMS.leaf


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
        assert all(replica.leaf_end > world.clock.date for replica in world.replicas)  # type: ignore[operator]
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
    world = CertsWorld(configurations=NAMES[missing:])
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


async def test_run_pauses_between_looks() -> None:
    world = CertsWorld()
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
