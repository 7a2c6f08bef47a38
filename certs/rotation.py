"""Certificates of a CA in a Secret, renewed by any number of replicas without a leader.

Every replica does the same: it reads all caBundles, then the Secret, and takes the next step. It writes only over what
it has read, so that a replica that was asleep cannot undo what others did meanwhile: the write to a caBundle that has
changed since is rejected, and one that has not changed is as old as the Secret that was read after it.

Which step is next, `certs.state.plan` says. A plan stands until something else is read, or its time is over, so that
replicas without anything to do examine no certificates, and a write that is not permitted makes no keys.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from certs.pem import CertificateError, Pair

# The keys of the Secret.
CA_CRT: Final = "ca.crt"
CA_KEY: Final = "ca.key"
NEXT_CRT: Final = "next.crt"
NEXT_KEY: Final = "next.key"
RETIRED: Final = "retired.json"
ROTATED: Final = "rotated"
KEYS: Final = (CA_CRT, CA_KEY, NEXT_CRT, NEXT_KEY, RETIRED, ROTATED)

# The part of its lifetime after which a CA or leaf certificate is renewed.
RENEWED_AT: Final = 2 / 3


class RotationEvent:
    """The events in the log, as they are written."""

    RETRYING: Final = "certificate rotation failed; retrying"
    CONFIGURATIONS_MISSING: Final = "webhook configurations do not exist yet; certificates are not published to them"
    MISSING: Final = "CA Secret is missing; creating it again, the serving certificate does not change"
    INVALID: Final = "CA Secret is invalid; repairing it, the serving certificate does not change"
    LEAF_ISSUED: Final = "serving certificate issued"
    BUNDLES_WRITTEN: Final = "caBundles updated"
    CA_CREATED: Final = "new CA created; it is published in the caBundles before it signs"
    CA_PROMOTED: Final = "new CA is in every caBundle; it signs from now on"
    CAS_REMOVED: Final = "expired CAs are removed from the caBundles"


# Seconds until the next step: after a change, after a failure, and otherwise. The last is also how long a removed
# caBundle is missing, and the delay after a jump of the wall clock.
BUSY_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 5.0
# How long a replica must have known a retired CA before it removes it, and the time between two CAs that it creates
# while it serves or the Secret exists, by the monotonic clock: a jump of the wall clock must neither remove a CA nor
# create one every few seconds.
GRACE_SECONDS: Final = 300.0
# How long a CA must have been in every caBundle before it signs, because API servers receive changes by a watch.
SPREAD_SECONDS: Final = 10.0


class NotNow(Exception):  # noqa: N818 - a state of affairs
    """The API server did not execute a request; the message is a clause about the request and the answer."""


@dataclass(frozen=True)
class StoredSecret:
    """The Secret as read: its values by key, decoded from base64, its resourceVersion, and what its annotation says."""

    data: Mapping[str, bytes]
    version: str
    is_rotation_requested: bool = False


@dataclass(frozen=True)
class WebhookConfiguration:
    """A webhook configuration as read: its resourceVersion, and caBundles (PEM, maybe empty) by name of the entry."""

    version: str
    bundles: Mapping[str, bytes]


# By name; None where a configuration does not exist.
Configurations = Mapping[str, WebhookConfiguration | None]


@dataclass(frozen=True)
class Terms:
    """The hosts and lifetimes of certificates.

    Attributes:
        hosts: the names that the API server connects to.
        authority: the lifetime of a CA.
        leaf: the lifetime of a serving certificate.
        skew: the tolerated difference between the replicas' clocks.
    """

    hosts: tuple[str, ...]
    authority: timedelta
    leaf: timedelta
    skew: timedelta = timedelta(minutes=5)

    @property
    def overlap(self) -> timedelta:
        """How long a CA is trusted after its last signature."""
        return self.leaf + self.skew


@dataclass(frozen=True)
class Situation:
    """What a plan depends on, but for the wall clock.

    Attributes:
        terms: for which hosts and how long certificates are made.
        bundles: caBundles (PEM, maybe empty) by entry by configuration, as read before the Secret; None: it does not
            exist.
        secret: the Secret's values by key; None: it does not exist.
        is_rotation_requested: the annotation of the Secret requests a new CA.
        signer: PEM of the CA of the replica's leaf certificate; empty if it has had none.
        is_serving: the leaf certificate is valid.
        has_leaf: the leaf certificate is valid, and not yet to be renewed.
        may_create: whether the replica may create a CA without a request.
        promotable: PEM of the incoming CA that has been in every caBundle for long enough to sign; empty: none.
        removable: PEM of the retired CAs that the replica has known for long enough to remove them.
    """

    terms: Terms
    bundles: Mapping[str, Mapping[str, bytes] | None]
    secret: Mapping[str, bytes] | None
    is_rotation_requested: bool
    signer: bytes
    is_serving: bool
    has_leaf: bool
    may_create: bool
    promotable: bytes
    removable: frozenset[bytes]


@dataclass(frozen=True)
class Plan:
    """What to do in a situation: write the Secret, or else serve with a new leaf certificate and write caBundles.

    Attributes:
        until: when another plan may be due in the same situation, in UTC.
        problems: a clause about each invalid part of the Secret.
        retired: PEM of the retired CAs in the Secret.
        published: PEM of the incoming CA if every caBundle has it; else None.
        secret: the values to write by key; None: nothing is to be written.
        makes_ca: they contain a new CA.
        changes: the events of writing them, with their fields.
        leaf: the pair to serve with from now on; None: the present one stays.
        signer_name: the common name of its CA.
        problem: why there is no leaf certificate, as a clause; empty if none is due.
        is_rejected: one is due, and the caBundles do not verify it.
        bundles: the caBundles to write, by entry by configuration.
        authority_end: when the CA that signs expires.
        rotated: when it began to sign.
    """

    until: datetime
    problems: tuple[str, ...] = ()
    retired: tuple[bytes, ...] = ()
    published: bytes | None = None
    secret: Mapping[str, bytes] | None = None
    makes_ca: bool = False
    changes: tuple[tuple[str, Mapping[str, object]], ...] = ()
    leaf: Pair | None = None
    signer_name: str = ""
    problem: str = ""
    is_rejected: bool = False
    bundles: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    authority_end: datetime | None = None
    rotated: datetime | None = None


# `certs.state.plan`, in a thread where it would hold up a server.
Planner = Callable[[Situation, datetime, datetime], Awaitable[Plan]]


class SecretStore(Protocol):
    """The Secret. Every method raises `NotNow` if the API server does not execute the request."""

    async def read(self) -> StoredSecret | None:
        """Its newest state; None if it does not exist."""

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create it with values by key, not encoded; False if it exists already."""

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        """Change it; False if it has another version or does not exist.

        If the request for a new CA is ``answered``, the annotation is removed.
        """


class Bundles(Protocol):
    """The webhook configurations. Every method raises `NotNow` if the API server does not execute the request."""

    async def read(self) -> Configurations:
        """The newest state of every expected configuration."""

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        """Change caBundles by name of the entry; False if the configuration has changed or does not exist."""


class _Clock(Protocol):
    """Monotonic seconds, Unix seconds, and a pause of so many seconds; `webhook.k8s.client.clock.Clock` is one."""

    def now(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class _Log(Protocol):
    """Events with fields: expected ones, and those that an admin should examine."""

    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...


@dataclass(eq=False, repr=False)
class Rotation:
    """The rotation by one replica.

    Args:
        store: the Secret of the CA.
        bundles: the webhook configurations.
        terms: for which hosts and how long certificates are made.
        serve: serves with a new pair; if it raises, the previous pair is kept.
        plan: makes plans.
        clock: the source of time, and of sleep.
        log: the logger for events.
        jitter: returns a number between two numbers.
    """

    store: SecretStore
    bundles: Bundles
    terms: Terms
    serve: Callable[[Pair], None]
    _: KW_ONLY
    plan: Planner
    clock: _Clock
    log: _Log
    jitter: Callable[[float, float], float] = random.uniform

    def __post_init__(self) -> None:
        self._grace = min(GRACE_SECONDS, self.terms.leaf.total_seconds() / 2)
        self._pair: Pair | None = None
        self._signer = b""
        self._renew = datetime.min.replace(tzinfo=UTC)
        self._read_times: dict[bytes, float] = {}
        self._made: float | None = None
        self._published: tuple[bytes, float] | None = None
        # The last plan, in which situation and when it was made.
        self._planned: tuple[Situation, datetime, Plan] | None = None
        self._logged: dict[str, object] = {}
        self._missing: tuple[str, ...] = ()
        self._problem = "not created yet"
        self._ready = False
        self.failures = 0
        self.authority_end: datetime | None = None
        self.rotated: datetime | None = None
        self.configurations: Configurations = {}

    def waiting_for(self) -> tuple[str, ...]:
        """Clauses about what is missing before the API server can call the server; empty once it could.

        If only some configurations are missing, the API server can call the server by the others.
        """
        if self._ready:
            return ()
        if self._pair is None:
            return (f"the serving certificate: {self._problem}",)
        if self.configurations and len(self._missing) == len(self.configurations):
            return tuple(f"{name} does not exist yet" for name in self._missing)
        self._ready = True
        return ()

    async def run(self) -> None:
        """Repeat `step` until cancelled."""
        while True:
            seconds = await self.step()
            await self.clock.sleep(seconds * self.jitter(0.8, 1.2))

    async def step(self) -> float:
        """Read the state and do the next step; returns the seconds until the next one."""
        try:
            return await self._step()
        except (NotNow, CertificateError) as error:
            self.failures += 1
            self._problem = str(error)
            self._log_once(RotationEvent.RETRYING, why=self._problem)
            return RETRY_SECONDS

    async def _step(self) -> float:
        # The order matters: a CA that is in the Secret, and was not in the caBundles before, is to be published. In
        # the other order it may have been published and removed already.
        configurations = await self.bundles.read()
        now = self._now()
        stored = await self.store.read()
        self.configurations = configurations
        self._missing = tuple(name for name, configuration in configurations.items() if configuration is None)
        plan = await self._plan_for(self._situation(stored, now), now)
        self._log_once(RotationEvent.MISSING, gone=stored is None and self._pair is not None)
        self._log_once(RotationEvent.INVALID, why=plan.problems)
        self._remember(plan)
        if plan.secret is not None:
            await self._write_secret(plan, plan.secret, stored)
            return BUSY_SECONDS
        issued = self._take_leaf(plan, now)
        written = await self._write_ca_bundles(plan)
        self.authority_end, self.rotated = plan.authority_end, plan.rotated
        if issued or written:
            return BUSY_SECONDS
        self._log_once(RotationEvent.CONFIGURATIONS_MISSING, names=self._missing)
        self._log_once(RotationEvent.RETRYING, why=self._problem if plan.is_rejected else "")
        return min(QUIET_SECONDS, self.terms.leaf.total_seconds() / 20)

    def _situation(self, stored: StoredSecret | None, now: datetime) -> Situation:
        clock = self.clock.now()
        is_serving = self._pair is not None and self._pair.is_valid(now)
        published = self._published
        return Situation(
            self.terms,
            {name: dict(each.bundles) if each else None for name, each in self.configurations.items()},
            dict(stored.data) if stored else None,
            is_rotation_requested=bool(stored and stored.is_rotation_requested),
            signer=self._signer,
            is_serving=is_serving,
            has_leaf=is_serving and now < self._renew,
            # Where there is no Secret and nothing to serve with, to wait would protect nothing.
            may_create=self._made is None or clock - self._made >= self._grace or (stored is None and not is_serving),
            promotable=published[0] if published and clock - published[1] >= SPREAD_SECONDS else b"",
            removable=frozenset(pem for pem, since in self._read_times.items() if clock - since >= self._grace),
        )

    async def _plan_for(self, situation: Situation, now: datetime) -> Plan:
        """The last plan while it stands, else another one."""
        if self._planned:
            former, made, plan = self._planned
            if situation == former and made <= now < plan.until:
                return plan
        plan = await self.plan(situation, now, self._now())
        self._planned = situation, now, plan
        return plan

    async def _write_secret(self, plan: Plan, data: Mapping[str, bytes], stored: StoredSecret | None) -> None:
        """Write the next state of the Secret."""
        if stored is None:
            done = await self.store.create(data)
        else:
            done = await self.store.replace(data, stored.version, answered=plan.makes_ca)
        if done:
            if plan.makes_ca:
                self._made = self.clock.now()
            for event, fields in plan.changes:
                self.log.info(event, **fields)

    def _take_leaf(self, plan: Plan, now: datetime) -> bool:
        """Serve with the new leaf certificate, if there is one."""
        if plan.problem:
            self._problem = plan.problem
        self.failures += plan.is_rejected
        pair = plan.leaf
        # The clock may have jumped while the plan was made.
        if pair is None or not pair.is_valid(self._now()):
            return False
        self.serve(pair)
        # The lifetime may be limited by that of the CA.
        life = (pair.not_after - now) * RENEWED_AT
        self._pair, self._signer = pair, pair.authority
        self._renew = now + life * self.jitter(0.9, 1.0)
        self.log.info(RotationEvent.LEAF_ISSUED, expires=pair.not_after.isoformat(), ca=plan.signer_name)
        return True

    async def _write_ca_bundles(self, plan: Plan) -> bool:
        """Write the Secret's CAs into every caBundle that does not contain the same CAs."""
        failures: list[str] = []
        changed = False
        for name, entries in plan.bundles.items():
            configuration = self.configurations[name]
            assert configuration
            try:
                if await self.bundles.write(name, configuration.version, entries):
                    self.log.info(RotationEvent.BUNDLES_WRITTEN, configuration=name, entries=sorted(entries))
            except NotNow as error:
                # A failed write must not prevent those of the other configurations.
                failures.append(str(error))
            else:
                changed = True
        if failures:
            raise NotNow("; ".join(failures))
        return changed

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.wall(), UTC)

    def _remember(self, plan: Plan) -> None:
        """Record when each retired CA was first read, and when the incoming one was first in every caBundle."""
        now = self.clock.now()
        if plan.published is None:
            self._published = None
        elif self._published is None or self._published[0] != plan.published:
            self._published = (plan.published, now)
        self._read_times = {pem: self._read_times.get(pem, now) for pem in plan.retired}

    def _log_once(self, event: str, **fields: object) -> None:
        """Log a lasting condition once, and again when it changes; it has ended where all fields are empty."""
        if not any(fields.values()):
            self._logged.pop(event, None)
        elif self._logged.get(event) != fields:
            self._logged[event] = fields
            self.log.warning(event, **fields)
