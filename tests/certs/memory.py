"""The API server's part, in memory: optimistic locking as it has it, a clock that a test moves, calls that fail."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509

from certs import rotation
from certs.authority import Authority, bundle, parse_bundle, verifies
from certs.pem import Pair
from certs.rotation import CA_CRT, CA_KEY, NotNow, Plan, Rotation, Situation, StoredSecret, Terms, WebhookConfiguration
from certs.source import self_signed
from certs.state import CaState, plan

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400.0
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

    error = warning

    def said(self, part: str) -> list[dict[str, Any]]:
        return [fields for _, event, fields in self.events if part in event]


class CertsWorld:
    """A cluster: one Secret, three configurations, and the replicas that look after them."""

    def __init__(self, *, configurations: tuple[str, ...] = NAMES) -> None:
        self.clock = CertsClock()
        self.secret: StoredSecret | None = None
        self.configurations: dict[str, WebhookConfiguration | None] = dict.fromkeys(NAMES)
        self._version = 0
        for name in configurations:
            self.overwrite(name, {})
        self.replicas: list[RotatingReplica] = []
        # Called before and after the effect of every call of a replica.
        self.at: Callable[[str], None] = lambda _: None
        self.writes = 0
        self._verified: set[tuple[bytes, x509.Certificate]] = set()

    # -- other clients -------------------------------------------------------------------------------------------------

    def overwrite(self, name: str, bundles: Mapping[str, bytes]) -> None:
        """Create a configuration, or write all its caBundles."""
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
        self._version += 1
        return str(self._version)

    # -- replicas ------------------------------------------------------------------------------------------------------

    def start(self, terms: Terms = TERMS) -> RotatingReplica:
        self.replicas.append(RotatingReplica(self, terms))
        return self.replicas[-1]

    async def settle(self, rounds: int = 10, seconds: float = 5) -> None:
        """Every replica looks often enough to finish what can be finished now."""
        for _ in range(rounds):
            self.clock.advance(seconds)
            for replica in self.replicas:
                await replica.step()
                self.check()

    async def wait(self, days: float) -> None:
        """Advances the clock; every replica checks now and then."""
        await self.settle(int(days * 2), 12 * 3600)

    async def rotated(self) -> None:
        """A look of each replica after the other, until another CA signs and all is quiet."""
        since = self.state.issuer
        await self.settle()
        assert self.state.issuer != since
        assert self.state.incoming is None

    def check(self) -> None:
        """Checks that a client that trusts any one caBundle can verify every replica."""
        bundles = set(self.bundles())
        for replica in self.replicas:
            for pem in bundles if replica.leaf else ():
                assert self._accepted(pem, replica)

    def _accepted(self, bundle: bytes, replica: RotatingReplica) -> bool:
        leaf = replica.leaf
        assert leaf
        # A state that held a moment ago still holds until the leaf expires.
        if (bundle, leaf) not in self._verified:
            if not verifies(bundle, leaf, replica.terms.hosts[0], self.clock.date):
                return False
            self._verified.add((bundle, leaf))
        return leaf.not_valid_before_utc <= self.clock.date <= leaf.not_valid_after_utc

    def bundles(self) -> list[bytes]:
        return [pem for each in self.configurations.values() if each for pem in each.bundles.values()]

    @property
    def trusted(self) -> list[set[bytes]]:
        """The certificates of every caBundle."""
        return [{bundle([ca]) for ca in parse_bundle(pem)} for pem in self.bundles()]

    @property
    def state(self) -> CaState:
        assert self.secret
        found, problems = CaState.decode(self.secret.data, self.clock.date)
        assert problems == ()
        return found

    @property
    def issuer(self) -> Authority:
        assert self.state.issuer
        return self.state.issuer


async def settled(replicas: int = 1) -> CertsWorld:
    world = CertsWorld()
    for _ in range(replicas):
        world.start()
    await world.settle()
    assert all(replica.leaf for replica in world.replicas)
    world.clock.advance(rotation.GRACE_SECONDS)
    return world


class RotatingReplica:
    """One process."""

    def __init__(self, world: CertsWorld, terms: Terms) -> None:
        self.world = world
        self.terms = terms
        self.leaf: x509.Certificate | None = None
        self.pairs: list[Pair] = []
        self.log = KeptObject()
        self.plans = self._failures = 0
        self._compared: object = None
        self._compared_at = 0.0
        self.rotation = Rotation(
            self,
            _Bundles(world),
            terms,
            self._serve,
            plan=self._plan,
            clock=world.clock,
            log=self.log,
            jitter=lambda _, high: high,
        )

    async def step(self) -> float:
        before, planned = self.plans, self.rotation._planned
        seconds = await self.rotation.step()
        stands = planned and self.plans == before and self.rotation.failures == self._failures
        if planned and stands and (planned is not self._compared or self.world.clock.unix > self._compared_at + 30):
            # No other plan was needed: it would be the same but for keys and times, now and as time passes.
            self._compared, self._compared_at = planned, self.world.clock.unix
            situation, _, stood = planned
            fresh = plan(situation, self.world.clock.date, self.world.clock.date)
            parts = ("problems", "retired", "published", "makes_ca", "problem", "bundles", "rotated")
            assert [getattr(fresh, part) for part in parts] == [getattr(stood, part) for part in parts]
            assert ((fresh.secret or {}).keys(), bool(fresh.leaf)) == ((stood.secret or {}).keys(), bool(stood.leaf))
        self._failures = self.rotation.failures
        return seconds

    @property
    def leaf_end(self) -> datetime:
        assert self.leaf
        return self.leaf.not_valid_after_utc

    def _serve(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.leaf = x509.load_pem_x509_certificate(pair.certificate)

    async def _plan(self, situation: Situation, now: datetime, later: datetime) -> Plan:
        self.plans += 1
        return plan(situation, now, later)

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
            is_requested = secret.is_rotation_requested and not answered
            self.world.secret = StoredSecret(dict(data), self.world.version(), is_requested)
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
            self._world.overwrite(name, {**found.bundles, **bundles})
            self._world.writes += 1
        self._world.at(f"wrote {name}")
        return done


def reject(*calls: str) -> Callable[[str], None]:
    """Returns a hook that rejects these calls, as the API server would."""

    def at(call: str) -> None:
        if call in calls:
            raise NotNow(f"{call} was refused")

    return at


def _pem(host: str, days: int, since: int = 0) -> dict[str, bytes]:
    made = Authority.new([host], START - timedelta(days=since), timedelta(days=days))
    return {CA_CRT: made.pem, CA_KEY: made.key_pem}


def _self_signed() -> dict[str, bytes]:
    pair = self_signed([HOST], START)
    return {CA_CRT: pair.certificate, CA_KEY: pair.key}


# Bytes of a CA's DER, and those in their place with which cryptography raises other errors than `ValueError`.
ODD = {
    "version 2": ("a003020102", "a003020101"),
    "extension twice": ("0603551d0f", "0603551d13"),
    "EDI party name": (f"82{len(HOST):02x}{HOST.encode().hex()}", f"a5{len(HOST):02x}{HOST.encode().hex()}"),
    "type of key": ("2a8648ce3d0201", "2a8648ce3d0209"),
    "name of bits": ("06035504030c", "060355040303"),
}


def odd(name: str) -> dict[str, bytes]:
    pems = _pem(HOST, 300)
    der = ssl.PEM_cert_to_DER_cert(pems[CA_CRT].decode()).hex().replace(*ODD[name])
    return pems | {CA_CRT: ssl.DER_cert_to_PEM_cert(bytes.fromhex(der)).encode()}


# Secrets of a CA as an admin edits them by hand: what is written into them; "emptied" removes all, None one value.
EDITS: dict[str, Callable[[], Mapping[str, bytes | None]]] = {
    "garbage": lambda: {CA_CRT: b"\xff\x00", CA_KEY: b"no", rotation.RETIRED: b"{", rotation.ROTATED: b"yesterday"},
    "without key": lambda: {CA_KEY: None},
    "mismatch": lambda: {CA_KEY: _pem(HOST, 1)[CA_KEY]},
    "expired CA": lambda: _pem(HOST, 1, since=9),
    "another CA": lambda: _pem(HOST, 300),
    "other hosts": lambda: _pem("elsewhere.svc", 300),
    "no authority": _self_signed,
    "emptied": dict,
    "half next": lambda: {rotation.NEXT_KEY: b"?"},
    **{name: partial(odd, name) for name in ODD},
}


def editing(name: str) -> Callable[[dict[str, bytes]], None]:
    def edit(data: dict[str, bytes]) -> None:
        kept = {} if name == "emptied" else dict(data)
        changed = {key: value for key, value in {**kept, **EDITS[name]()}.items() if value is not None}
        data.clear()
        data.update(changed)

    return edit


@asynccontextmanager
async def serving(signer: Authority, host: str, directory: Path) -> AsyncIterator[int]:
    """A TLS server with a certificate that an authority signs, which ends each connection at once; by its port."""
    pair = signer.issue([host], datetime.now(UTC), timedelta(days=1))
    (directory / "pair").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pair")

    async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(end, "localhost", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
