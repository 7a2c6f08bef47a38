"""Certificates of a CA in a Secret, renewed by any number of replicas without a leader.

Every replica does the same: it reads all caBundles, then the Secret, and does what comes next. What it writes, it
writes only over what it has read, so that a replica that was asleep can't undo what others did meanwhile: a caBundle
that changed since refuses the write, and one that didn't is as old as the Secret that was read after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from cryptography import x509

from certs.authority import Authority, parse_bundle, verifies
from certs.source import CertificateError, Pair
from certs.state import KEYS, RENEWED_AT, CaState, Terms, plan_next_state

# Until the next look: after a step, after a failure or while somebody else must act, and in quiet times. The last is
# how long a caBundle that somebody took away stays away, and how late we are after the wall clock has jumped.
BUSY_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 5.0
# How long a replica must have known a retired CA before it lets go of it, and between two CAs that it makes, by the
# monotonic clock: a wall clock that jumps must neither end a CA nor make a new one every few seconds.
GRACE_SECONDS: Final = 300.0
# How long a CA must have been in every caBundle before it signs: API servers learn of a change by a watch.
SPREAD_SECONDS: Final = 10.0


class NotNow(Exception):  # noqa: N818 - a state of affairs
    """The API server didn't do it this time.

    Args:
        why: a clause that says what was tried and what came of it.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


@dataclass(frozen=True)
class StoredSecret:
    """The Secret as read.

    Attributes:
        data: values by key, decoded from base64.
        version: its resourceVersion.
        asked: whether its annotation requests another CA.
    """

    data: Mapping[str, bytes]
    version: str
    asked: bool = False


@dataclass(frozen=True)
class WebhookConfiguration:
    """A webhook configuration as read.

    Attributes:
        version: its resourceVersion.
        bundles: caBundle (PEM, maybe empty) by name of the entry.
    """

    version: str
    bundles: Mapping[str, bytes]


class SecretStore(Protocol):
    """The Secret. Every method raises `NotNow` where there is no answer, or a refusal."""

    async def read(self) -> StoredSecret | None:
        """Its newest state; None: it doesn't exist."""

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create it; False: it exists already.

        Args:
            data: values by key, not encoded.
        """

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        """Change it; False: its version is another one by now, or it no longer exists.

        Args:
            data: values by key, not encoded.
            version: the resourceVersion that it must still have.
            answered: remove the annotation that requests another CA.
        """


class Bundles(Protocol):
    """The webhook configurations. Every method raises `NotNow` where there is no answer, or a refusal."""

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        """The newest state of every configuration that there should be, by name; None: it doesn't exist."""

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        """Change caBundles by name of the entry; False: the configuration is another one by now, or it is gone."""


class RotationClock(Protocol):
    """Time; `webhook.k8s.client.clock.Clock` is one."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""

    def wall(self) -> float:
        """Unix time in seconds."""

    async def sleep(self, seconds: float) -> None:
        """Pause."""


class Log(Protocol):
    """Where events go; structlog's loggers are such."""

    def info(self, event: str, **fields: Any) -> Any:
        """Something happened as it should."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log an event that an admin should look at."""


@dataclass(frozen=True)
class _Leaf:
    pair: Pair
    authority: x509.Certificate
    renew: datetime

    def valid(self, now: datetime) -> bool:
        leaf = self.pair.leaf
        return leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc


class Rotation:
    """One replica's part in the rotation.

    Args:
        store: the Secret of the CA.
        bundles: the webhook configurations.
        terms: for which hosts and how long certificates are made.
        serve: takes a pair into service; raises where that is impossible, and then the former pair stays.
        clock: the source of time, and of sleep.
        log: the logger for events.
        jitter: picks a random number between two bounds.
    """

    def __init__(
        self,
        store: SecretStore,
        bundles: Bundles,
        terms: Terms,
        serve: Callable[[Pair], None],
        *,
        clock: RotationClock,
        log: Log,
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
        self._leaf: _Leaf | None = None
        self._known: dict[x509.Certificate, float] = {}
        self._made: float | None = None
        self._published: tuple[x509.Certificate, float] | None = None
        self._told: dict[str, object] = {}
        self._missing: tuple[str, ...] = ()
        self._problem = "the certificate has not been looked at yet"
        self._ready = False
        self.failures = 0
        self.authority_end: datetime | None = None
        self.rotated: datetime | None = None
        self.found: Mapping[str, WebhookConfiguration | None] = {}

    @property
    def leaf_end(self) -> datetime | None:
        """When the serving certificate expires; None: there is none yet."""
        return self._leaf.pair.leaf.not_valid_after_utc if self._leaf else None

    def waiting_for(self) -> tuple[str, ...]:
        """What is missing before the API server can call the replica, in words; empty from the first time that it can.

        One missing configuration among several does not keep the API server from calling by the others.
        """
        if self._ready:
            return ()
        if self._leaf is None:
            return (f"the serving certificate: {self._problem}",)
        if self.found and len(self._missing) == len(self.found):
            return tuple(f"{name}: it doesn't exist yet" for name in self._missing)
        self._ready = True
        return ()

    async def run(self) -> None:
        """Look and act until cancelled."""
        while True:
            seconds = await self.step()
            await self._clock.sleep(seconds * self._jitter(0.8, 1.2))

    async def step(self) -> float:
        """Look once, and do what comes next; the seconds until the next look."""
        try:
            return await self._step()
        except (NotNow, CertificateError) as error:
            self.failures += 1
            self._problem = error.why if isinstance(error, NotNow) else str(error)
            self._tell("certificates: tried again soon", why=self._problem)
            return RETRY_SECONDS

    async def _step(self) -> float:
        # In this order: what the configurations lack of a Secret that is read after them is not there yet; the other
        # way round it may have come and gone.
        found = await self._bundles.read()
        now = self._now()
        stored = await self._store.read()
        self.found = found
        self._missing = tuple(name for name, configuration in found.items() if configuration is None)
        state, problems = CaState.decode(stored.data if stored else {}, now + self._terms.overlap)
        self._tell_problems(stored, problems)
        self._remember(state, found)
        if await self._advance_secret(state, stored, found, now, repair=bool(problems and stored)):
            return BUSY_SECONDS
        issued = self._issue_leaf(state, found, now)
        written = await self._write_ca_bundles(state, found)
        self.authority_end = state.issuer.certificate.not_valid_after_utc if state.issuer else None
        self.rotated = state.rotated
        if issued or written:
            return BUSY_SECONDS
        self._tell("webhook configurations are missing; certificates wait for them", names=self._missing)
        self._told.pop("certificates: tried again soon", None)
        return min(QUIET_SECONDS, self._terms.leaf.total_seconds() / 20)

    async def _advance_secret(
        self,
        state: CaState,
        stored: StoredSecret | None,
        found: Mapping[str, WebhookConfiguration | None],
        now: datetime,
        *,
        repair: bool,
    ) -> bool:
        """Bring the Secret one step further, if there is one."""
        leaf = self._leaf
        planned_state = plan_next_state(
            state,
            self._terms,
            now,
            _all(found),
            mine=leaf.authority if leaf and leaf.valid(now) else None,
            content=leaf is not None and leaf.valid(now) and now < leaf.renew,
            asked=bool(stored and stored.asked),
            may_make=self._made is None or self._clock.now() - self._made >= self._grace,
            may_promote=self._published is not None and self._clock.now() - self._published[1] >= SPREAD_SECONDS,
            may_retire=lambda each: self._clock.now() - self._known[each.certificate] >= self._grace,
        )
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
            self._tell_change(state, planned_state)
        return True

    def _issue_leaf(self, state: CaState, found: Mapping[str, WebhookConfiguration | None], now: datetime) -> bool:
        """Serve with a new leaf, if one is due and every caller can verify it."""
        issuer, leaf = state.issuer, self._leaf
        if issuer is None or (why := issuer.unusable(self._terms.hosts, now)):
            self._problem = why if issuer else "the new CA is being published"
            return False
        same = leaf is not None and leaf.authority == issuer.certificate
        if leaf and same and leaf.valid(now) and now < leaf.renew:
            return False
        bundles = _all(found)
        lacking = [name for name, each in found.items() if each and not _has(each, issuer)]
        if lacking and not same:
            self._problem = f"{', '.join(lacking)} has no caBundle with our CA yet"
            return False
        pair = issuer.issue(self._terms.hosts, now, self._terms.leaf)
        made = pair.leaf
        checked = {pair.authority} if same else {pair.authority, *bundles}
        if not all(verifies(each, made, host, self._now()) for each in checked for host in self._terms.hosts):
            self._problem = "a new certificate was not accepted by our own caBundle; the one before stays"
            self._tell("certificates: tried again soon", why=self._problem)
            return False
        self._serve(pair)
        # Of the life that a short-lived CA leaves it.
        life = (made.not_valid_after_utc - now) * RENEWED_AT
        self._leaf = _Leaf(pair, issuer.certificate, now + life * self._jitter(0.9, 1.0))
        self._log.info(
            "serving certificate issued",
            expires=made.not_valid_after_utc.isoformat(),
            ca=_common_name(issuer.certificate),
        )
        return True

    async def _write_ca_bundles(self, state: CaState, found: Mapping[str, WebhookConfiguration | None]) -> bool:
        """Write the CAs of the Secret into every caBundle; those with the same certificates are left as they are."""
        wanted = state.trust_bundle()
        meant = set(parse_bundle(wanted))
        if not meant:
            return False
        refused: list[str] = []
        changed = False
        for name, configuration in found.items():
            if configuration is None:
                continue
            entries = {entry: wanted for entry, pem in configuration.bundles.items() if set(parse_bundle(pem)) != meant}
            if not entries:
                continue
            try:
                if await self._bundles.write(name, configuration.version, entries):
                    self._log.info("caBundles written", configuration=name, entries=sorted(entries))
            except NotNow as error:
                # One that can't be written must not keep the others from what they need.
                refused.append(error.why)
            else:
                changed = True
        if refused:
            raise NotNow("; ".join(refused))
        return changed

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    def _remember(self, state: CaState, found: Mapping[str, WebhookConfiguration | None]) -> None:
        """Record since when each retired CA is known, and since when the incoming one is in every caBundle."""
        now = self._clock.now()
        incoming = state.incoming.certificate if state.incoming else None
        if incoming is None or any(incoming not in parse_bundle(each) for each in _all(found)):
            self._published = None
        elif self._published is None or self._published[0] != incoming:
            self._published = (incoming, now)
        self._known = {each.certificate: self._known.get(each.certificate, now) for each in state.retired}

    def _tell_problems(self, stored: StoredSecret | None, problems: tuple[str, ...]) -> None:
        gone = stored is None and self._leaf is not None
        self._tell("the CA's Secret is gone; it is made anew, the certificate in service stays", gone=gone)
        broken = problems if stored and stored.data else ()
        self._tell("the CA's Secret is broken; it is repaired, the certificate in service stays", why=broken)

    def _tell_change(self, old: CaState, new: CaState) -> None:
        if new.incoming and new.incoming != old.incoming:
            self._log.info("new CA made; it is published before it signs", ca=_common_name(new.incoming.certificate))
        if new.issuer and new.issuer != old.issuer:
            self._log.info(
                "every caBundle has the new CA; it signs from now on", ca=_common_name(new.issuer.certificate)
            )
        before, after = ({each.certificate for each in state.retired if not each.leaving} for state in (old, new))
        if before - after:
            self._log.info(
                "old CAs have had their time; caBundles lose them", cas=sorted(map(_common_name, before - after))
            )

    def _tell(self, event: str, **fields: object) -> None:
        """Log what stays true for a while once, and again when it changes; empty fields: it is not true now."""
        if not any(fields.values()):
            self._told.pop(event, None)
        elif self._told.get(event) != fields:
            self._told[event] = fields
            self._log.warning(event, **fields)


def _all(found: Mapping[str, WebhookConfiguration | None]) -> set[bytes]:
    return {pem for each in found.values() if each for pem in each.bundles.values()}


def _has(configuration: WebhookConfiguration, authority: Authority) -> bool:
    return all(authority.certificate in parse_bundle(pem) for pem in configuration.bundles.values())


def _common_name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string().removeprefix("CN=")
