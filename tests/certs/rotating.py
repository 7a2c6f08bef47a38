"""The state of a replica after its checks, and the CAs that every replica trusts."""

from __future__ import annotations

from certs.authority import Authority, bundle, parse_bundle
from certs.rotation import GRACE_SECONDS
from certs.state import CaState
from tests.certs.memory import CertsWorld

DAY = 86_400.0


def trusted(world: CertsWorld) -> list[set[bytes]]:
    """The certificates of every caBundle."""
    found = [each for each in world.configurations.values() if each]
    return [{bundle([ca]) for ca in parse_bundle(pem)} for each in found for pem in each.bundles.values()]


def state(world: CertsWorld) -> CaState:
    assert world.secret
    found, problems = CaState.decode(world.secret.data, world.clock.date)
    assert problems == ()
    return found


async def settled(replicas: int = 1) -> CertsWorld:
    world = CertsWorld()
    for _ in range(replicas):
        world.start()
    await world.settle()
    assert all(replica.leaf for replica in world.replicas)
    world.clock.advance(GRACE_SECONDS)
    return world


async def rotated(world: CertsWorld, since: Authority | None) -> None:
    """A look of each replica after the other, until another CA signs and all is quiet."""
    await world.settle()
    assert state(world).issuer != since
    assert state(world).incoming is None
