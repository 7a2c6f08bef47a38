"""Rotation repairs Secrets, caBundles and leaves that others edited or deleted, in its usual order."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from certs.rotation import GRACE_SECONDS, RotationEvent
from certs.source import CertificateError, Pair, self_signed
from certs.state import MOST_RETIRED
from tests.certs.edits import EDITS, another_ca, emptied, expired_ca, half_next, other_hosts
from tests.certs.memory import ENTRIES, HOST, NAMES, START, CertsWorld, reject
from tests.certs.rotating import DAY, rotated, settled, state, trusted


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
async def test_a_secret_edited_by_hand_heals_in_the_same_order(edit: Callable[[dict[str, bytes]], None]) -> None:
    world = await settled(3)
    world.clock.advance(GRACE_SECONDS)
    before = [replica.leaf for replica in world.replicas]
    world.edit(edit)
    if edit is other_hosts:
        world.start()  # to those who serve already it doesn't matter
    await world.settle()  # which asserts that everybody stays verifiable throughout

    healed = state(world)
    assert healed.issuer
    assert healed.issuer.unusable([HOST], world.clock.date) == ""
    assert healed.incoming is None
    if edit is not half_next:
        assert [replica.leaf for replica in world.replicas][:3] != before
    if edit not in (another_ca, emptied, other_hosts, expired_ca):
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


@pytest.mark.parametrize("rotations", [1, 3])
async def test_etcd_is_restored_from_before_a_rotation(rotations: int) -> None:
    """The Secret and the configurations are old, and every replica serves with a CA that they do not know."""
    world = await settled(3)
    saved = world.secret, dict(world.configurations)
    for _ in range(rotations):
        world.clock.advance(GRACE_SECONDS)
        old = state(world).issuer
        world.ask()
        await rotated(world, old)
    world.secret, world.configurations = saved[0], dict(saved[1])

    # A look of one replica makes the other ones' CA trusted, too: the write to the Secret, and that to the caBundles.
    await world.replicas[0].step()
    await world.replicas[0].step()
    world.check()
    await world.settle()  # which asserts that everybody stays verifiable throughout
    assert state(world).issuer
    late = world.start()
    await world.settle()
    assert late.leaf


async def test_a_secret_full_of_retired_cas_is_read_in_part() -> None:
    world = await settled()
    retired = {"certificate": self_signed([HOST], START).certificate.decode(), "until": START.isoformat()}

    def fill(data: dict[str, bytes]) -> None:
        data["retired.json"] = json.dumps([retired] * 1000).encode()

    world.edit(fill)
    assert len(state(world).retired) <= MOST_RETIRED


async def test_a_secret_that_is_deleted_all_the_time_makes_no_endless_bundle() -> None:
    world = await settled()
    for _ in range(3 * MOST_RETIRED):
        world.secret = None
        world.clock.advance(GRACE_SECONDS)
        await world.settle(6)
    assert all(len(each) <= MOST_RETIRED + 2 for each in trusted(world))


async def test_the_ca_of_another_way_of_serving_is_kept_for_an_overlap() -> None:
    """In a rollout from mounted certificates the old replicas serve with a CA that kubevirt-webhook does not know."""
    world = CertsWorld()
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


async def test_a_leaf_that_nobody_would_accept_is_not_served(golden: Callable[[str], None]) -> None:
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
    golden(replica.log.said(RotationEvent.RETRYING)[-1]["why"])
    world.at = lambda _: None
    await world.settle()
    assert replica.leaf != serving


async def test_when_everything_is_gone_within_the_grace_it_waits_and_heals() -> None:
    world = CertsWorld()
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
    world = CertsWorld()
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
    assert replica.leaf_end == serving.not_valid_after_utc  # type: ignore[union-attr]
    assert replica.rotation.failures == 1
