"""The API server's part, in memory: optimistic locking as it has it, a clock that a test moves, calls that fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.authority import verifies
from certs.rotation import NotNow, Rotation, StoredSecret, WebhookConfiguration
from certs.source import Pair
from certs.state import Terms

START = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "kubevirt-webhook.kubevirt-webhook.svc"
TERMS = Terms((HOST,), timedelta(days=365), timedelta(days=7))
NAMES = ("mutating/first", "mutating/last", "validating/first")
ENTRIES = ("enforce", "observe")


class Killed(BaseException):
    """The replica ended in the middle of a call."""


@dataclass
class CertsClock:
    """A clock that moves only when a test moves it."""

    monotonic: float = 0.0
    unix: float = START.timestamp()
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.monotonic

    def wall(self) -> float:
        return self.unix

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.monotonic += seconds
        self.unix += seconds

    @property
    def date(self) -> datetime:
        return datetime.fromtimestamp(self.unix, UTC)


@dataclass
class KeptObject:
    """Everything that was logged."""

    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def info(self, event: str, **fields: Any) -> None:
        self.events.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append(("warning", event, fields))

    def said(self, part: str) -> list[dict[str, Any]]:
        return [fields for _, event, fields in self.events if part in event]


class CertsWorld:
    """A cluster: one Secret, three configurations, and the replicas that look after them."""

    def __init__(self, *, configurations: tuple[str, ...] = NAMES) -> None:
        self.clock = CertsClock()
        self.secret: StoredSecret | None = None
        self.configurations: dict[str, WebhookConfiguration | None] = dict.fromkeys(NAMES)
        self._versions = itertools.count(1)
        for name in configurations:
            self.create(name)
        self.replicas: list[RotatingReplica] = []
        # Called before and after the effect of every call of a replica.
        self.at: Callable[[str], None] = lambda _: None
        self.writes = 0
        self._verified: set[tuple[bytes, x509.Certificate]] = set()

    # -- other clients -------------------------------------------------------------------------------------------------

    def create(self, name: str) -> None:
        self.overwrite(name, {})

    def overwrite(self, name: str, bundles: Mapping[str, bytes]) -> None:
        entries = {entry: bundles.get(entry, b"") for entry in ENTRIES}
        self.configurations[name] = WebhookConfiguration(self.version(), entries)

    def edit(self, change: Callable[[dict[str, bytes]], None]) -> None:
        data = dict(self.secret.data) if self.secret else {}
        change(data)
        self.secret = StoredSecret(data, self.version())

    def ask(self) -> None:
        assert self.secret
        self.secret = replace(self.secret, version=self.version(), is_rotation_requested=True)

    def version(self) -> str:
        return str(next(self._versions))

    # -- replicas ------------------------------------------------------------------------------------------------------

    def start(self, terms: Terms = TERMS) -> RotatingReplica:
        replica = RotatingReplica(self, terms)
        self.replicas.append(replica)
        return replica

    async def settle(self, rounds: int = 10) -> None:
        """Every replica looks often enough to finish what can be finished now."""
        for _ in range(rounds):
            self.clock.advance(5)
            for replica in self.replicas:
                await replica.step()
                self.check()

    async def wait(self, days: float) -> None:
        """Advances the clock; every replica checks now and then."""
        for _ in range(int(days * 2)):
            self.clock.advance(12 * 3600)
            for replica in self.replicas:
                await replica.step()
                self.check()

    def check(self) -> None:
        """Checks that a client that trusts any one caBundle can verify every replica."""
        found = [each for each in self.configurations.values() if each]
        bundles = {pem for each in found for pem in each.bundles.values()}
        for replica in self.replicas:
            for bundle in bundles if replica.leaf else ():
                assert self._accepted(bundle, replica)

    def _accepted(self, bundle: bytes, replica: RotatingReplica) -> bool:
        leaf = replica.leaf
        assert leaf
        # A state that held a moment ago still holds until the leaf expires.
        if (bundle, leaf) not in self._verified:
            if not verifies(bundle, leaf, replica.terms.hosts[0], self.clock.date):
                return False
            self._verified.add((bundle, leaf))
        return leaf.not_valid_before_utc <= self.clock.date <= leaf.not_valid_after_utc


class RotatingReplica:
    """One process."""

    def __init__(self, world: CertsWorld, terms: Terms) -> None:
        self.world = world
        self.terms = terms
        self.leaf: x509.Certificate | None = None
        self.pairs: list[Pair] = []
        self.log = KeptObject()
        self.rotation = Rotation(
            self, _Bundles(world), terms, self._serve, clock=world.clock, log=self.log, jitter=lambda _, high: high
        )

    async def step(self) -> float:
        return await self.rotation.step()

    @property
    def leaf_end(self) -> datetime | None:
        """When the certificate that it serves with expires."""
        return self.leaf.not_valid_after_utc if self.leaf else None

    def _serve(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.leaf = pair.leaf

    # -- the Secret ----------------------------------------------------------------------------------------------------

    async def read(self) -> StoredSecret | None:
        self.world.at("read secret")
        return self.world.secret

    async def create(self, data: Mapping[str, bytes]) -> bool:
        self.world.at("create secret")
        done = self.world.secret is None
        if done:
            self.world.secret = StoredSecret(dict(data), self.world.version())
            self.world.writes += 1
        self.world.at("created secret")
        return done

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        self.world.at("replace secret")
        secret = self.world.secret
        done = secret is not None and secret.version == version
        if done and secret:
            self.world.secret = StoredSecret(
                dict(data), self.world.version(), secret.is_rotation_requested and not answered
            )
            self.world.writes += 1
        self.world.at("replaced secret")
        return done


class _Bundles:
    def __init__(self, world: CertsWorld) -> None:
        self._world = world

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        self._world.at("read bundles")
        return dict(self._world.configurations)

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        self._world.at(f"write {name}")
        found = self._world.configurations[name]
        done = found is not None and found.version == version
        if done and found:
            self._world.configurations[name] = WebhookConfiguration(self._world.version(), {**found.bundles, **bundles})
            self._world.writes += 1
        self._world.at(f"wrote {name}")
        return done


def reject(*calls: str) -> Callable[[str], None]:
    """Returns a hook that rejects these calls, as the API server would."""

    def at(call: str) -> None:
        if call in calls:
            raise NotNow(f"{call} was refused")

    return at
