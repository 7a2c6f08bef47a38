"""Certificates of a CA in a Secret, renewed by any number of replicas without a leader.

Every replica does the same: it reads all caBundles, then the Secret, and takes the next step. It writes only over what
it has read, so that a replica that was asleep cannot undo what others did meanwhile: the write to a caBundle that has
changed since is rejected, and one that has not changed is as old as the Secret that was read after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from cryptography import x509

from certs.authority import parse_bundle, verifies
from certs.source import CertificateError, Pair
from certs.state import KEYS, RENEWED_AT, CaState, Observation, Terms, plan_next_state


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
# How long a replica must have known a retired CA before it removes it, and the time between two CAs that it creates, by
# the monotonic clock: a jump of the wall clock must neither remove a CA nor create one every few seconds.
GRACE_SECONDS: Final = 300.0
# How long a CA must have been in every caBundle before it signs, because API servers receive changes by a watch.
SPREAD_SECONDS: Final = 10.0


class NotNow(Exception):  # noqa: N818 - a state of affairs
    """The API server did not execute a request.

    Args:
        why: a clause about the request and the answer.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


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


class Rotation:
    """The rotation by one replica.

    Args:
        store: the Secret of the CA.
        bundles: the webhook configurations.
        terms: for which hosts and how long certificates are made.
        serve: serves with a new pair; if it raises, the previous pair is kept.
        clock: the source of time, and of sleep.
        log: the logger for events.
        jitter: returns a number between two numbers.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each from outside
        self,
        store: SecretStore,
        bundles: Bundles,
        terms: Terms,
        serve: Callable[[Pair], None],
        *,
        clock: _Clock,
        log: _Log,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._store: Final = store
        self._bundles: Final = bundles
        self._terms: Final = terms
        self._serve: Final = serve
        self._clock: Final = clock
        self._log: Final = log
        self._jitter: Final = jitter
        self._grace: Final = min(GRACE_SECONDS, terms.leaf.total_seconds() / 2)
        self._pair: Pair | None = None
        self._signer: x509.Certificate | None = None
        self._renew = datetime.min.replace(tzinfo=UTC)
        self._known: dict[x509.Certificate, float] = {}
        self._made: float | None = None
        self._published: tuple[x509.Certificate, float] | None = None
        self._logged: dict[str, object] = {}
        self._missing: tuple[str, ...] = ()
        self._problem = "not created yet"
        self._ready = False
        self.failures = 0
        self.authority_end: datetime | None = None
        self.rotated: datetime | None = None
        self.found: Configurations = {}

    def waiting_for(self) -> tuple[str, ...]:
        """Clauses about what is missing before the API server can call the server; empty once it could.

        If only some configurations are missing, the API server can call the server by the others.
        """
        if self._ready:
            return ()
        if self._pair is None:
            return (f"the serving certificate: {self._problem}",)
        if self.found and len(self._missing) == len(self.found):
            return tuple(f"{name} does not exist yet" for name in self._missing)
        self._ready = True
        return ()

    async def run(self) -> None:
        """Repeat `step` until cancelled."""
        while True:
            seconds = await self.step()
            await self._clock.sleep(seconds * self._jitter(0.8, 1.2))

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
        configurations = await self._bundles.read()
        now = self._now()
        stored = await self._store.read()
        self.found = configurations
        self._missing = tuple(name for name, configuration in configurations.items() if configuration is None)
        state, problems = CaState.decode(stored.data if stored else {}, now + self._terms.overlap)
        self._log_once(RotationEvent.MISSING, gone=stored is None and self._pair is not None)
        self._log_once(RotationEvent.INVALID, why=problems if stored and stored.data else ())
        self._remember(state)
        if await self._advance_secret(state, stored, now, repair=bool(problems and stored)):
            return BUSY_SECONDS
        issued = self._issue_leaf(state, now)
        written = await self._write_ca_bundles(state)
        self.authority_end = state.issuer.certificate.not_valid_after_utc if state.issuer else None
        self.rotated = state.rotated
        if issued or written:
            return BUSY_SECONDS
        self._log_once(RotationEvent.CONFIGURATIONS_MISSING, names=self._missing)
        self._logged.pop(RotationEvent.RETRYING, None)
        return min(QUIET_SECONDS, self._terms.leaf.total_seconds() / 20)

    def _is_serving(self, now: datetime) -> bool:
        """Whether there is a leaf certificate that is valid."""
        leaf = self._pair.leaf if self._pair else None
        return leaf is not None and leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc

    def _published_bundles(self) -> set[bytes]:
        return {pem for each in self.found.values() if each for pem in each.bundles.values()}

    async def _advance_secret(
        self, state: CaState, stored: StoredSecret | None, now: datetime, *, repair: bool
    ) -> bool:
        """Write the next state of the Secret; whether there was one to write."""
        serving = self._is_serving(now)
        observed = Observation(
            now,
            self._published_bundles(),
            serving_ca=self._signer if serving else None,
            has_leaf=serving and now < self._renew,
            is_rotation_requested=bool(stored and stored.is_rotation_requested),
            may_create=self._made is None or self._clock.now() - self._made >= self._grace,
            may_promote=self._published is not None and self._clock.now() - self._published[1] >= SPREAD_SECONDS,
            may_retire=lambda each: self._clock.now() - self._known[each.certificate] >= self._grace,
        )
        planned_state = plan_next_state(state, self._terms, observed)
        if planned_state == state and not repair:
            return False
        made = planned_state.incoming is not None and planned_state.incoming != state.incoming
        data = planned_state.encode()
        if stored is None:
            done = await self._store.create(data)
        elif data == {key: stored.data[key] for key in KEYS if key in stored.data} and not made:
            return False
        else:
            done = await self._store.replace(data, stored.version, answered=made)
        if done:
            if made:
                self._made = self._clock.now()
            self._log_change(state, planned_state)
        return True

    def _issue_leaf(self, state: CaState, now: datetime) -> bool:
        """Serve with a new leaf certificate, if one is due and every caBundle verifies it."""
        issuer = state.issuer
        if issuer is None or (why := issuer.unusable(self._terms.hosts, now)):
            self._problem = why if issuer else "the new CA is not in every caBundle yet"
            return False
        same = self._signer == issuer.certificate
        if same and self._is_serving(now) and now < self._renew:
            return False
        published = {name: each.bundles.values() for name, each in self.found.items() if each}
        lacking = [
            name for name, pems in published.items() if any(issuer.certificate not in parse_bundle(pem) for pem in pems)
        ]
        if lacking and not same:
            self._problem = f"the caBundles of {', '.join(lacking)} lack the CA"
            return False
        pair = issuer.issue(self._terms.hosts, now, self._terms.leaf)
        made = pair.leaf
        checked = {pair.authority} if same else {pair.authority, *self._published_bundles()}
        if not all(verifies(each, made, host, self._now()) for each in checked for host in self._terms.hosts):
            self._problem = "the caBundles do not verify the new certificate; the previous one is kept"
            self._log_once(RotationEvent.RETRYING, why=self._problem)
            return False
        self._serve(pair)
        # The lifetime may be limited by that of the CA.
        life = (made.not_valid_after_utc - now) * RENEWED_AT
        self._pair, self._signer = pair, issuer.certificate
        self._renew = now + life * self._jitter(0.9, 1.0)
        expires, ca = made.not_valid_after_utc.isoformat(), _common_name(issuer.certificate)
        self._log.info(RotationEvent.LEAF_ISSUED, expires=expires, ca=ca)
        return True

    async def _write_ca_bundles(self, state: CaState) -> bool:
        """Write the Secret's CAs into every caBundle that does not contain the same CAs."""
        wanted = state.trust_bundle()
        certificates = set(parse_bundle(wanted))
        if not certificates:
            return False
        failures: list[str] = []
        changed = False
        for name, configuration in self.found.items():
            bundles = configuration.bundles if configuration else {}
            entries = {entry: wanted for entry, pem in bundles.items() if set(parse_bundle(pem)) != certificates}
            if configuration is None or not entries:
                continue
            try:
                if await self._bundles.write(name, configuration.version, entries):
                    self._log.info(RotationEvent.BUNDLES_WRITTEN, configuration=name, entries=sorted(entries))
            except NotNow as error:
                # A failed write must not prevent those of the other configurations.
                failures.append(error.why)
            else:
                changed = True
        if failures:
            raise NotNow("; ".join(failures))
        return changed

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    def _remember(self, state: CaState) -> None:
        """Record when each retired CA was first read, and when the incoming one was first in every caBundle."""
        now = self._clock.now()
        incoming = state.incoming.certificate if state.incoming else None
        if incoming is None or any(incoming not in parse_bundle(each) for each in self._published_bundles()):
            self._published = None
        elif self._published is None or self._published[0] != incoming:
            self._published = (incoming, now)
        self._known = {each.certificate: self._known.get(each.certificate, now) for each in state.retired}

    def _log_change(self, old: CaState, new: CaState) -> None:
        if new.incoming and new.incoming != old.incoming:
            self._log.info(RotationEvent.CA_CREATED, ca=_common_name(new.incoming.certificate))
        if new.issuer and new.issuer != old.issuer:
            self._log.info(RotationEvent.CA_PROMOTED, ca=_common_name(new.issuer.certificate))
        before, after = ({each.certificate for each in state.retired if not each.leaving} for state in (old, new))
        if before - after:
            self._log.info(RotationEvent.CAS_REMOVED, cas=sorted(map(_common_name, before - after)))

    def _log_once(self, event: str, **fields: object) -> None:
        """Log a lasting condition once, and again when it changes; it has ended where all fields are empty."""
        if not any(fields.values()):
            self._logged.pop(event, None)
        elif self._logged.get(event) != fields:
            self._logged[event] = fields
            self._log.warning(event, **fields)


def _common_name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string().removeprefix("CN=")
