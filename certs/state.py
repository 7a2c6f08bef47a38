"""What the Secret holds, and which change of it comes next. Pure, but for the keys that are made.

A CA is first `incoming`: published, without a leaf. Once every caBundle has it, it becomes the `issuer`, and the issuer
before it is `retired`: trusted until no leaf of it can be valid any more. Then it is `leaving`, and is forgotten once
no caBundle has it. A CA that a caBundle trusts and the Secret does not hold is retired, not dropped, if it is bound as
`Authority.new` makes it: a replica may be serving with it, and the Secret may have been edited. Any other is dropped,
unless the Secret holds nothing yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from certs.authority import Authority, bundle, is_bound, parse_bundle
from certs.source import CertificateError

CA_CRT: Final = "ca.crt"
CA_KEY: Final = "ca.key"
NEXT_CRT: Final = "next.crt"
NEXT_KEY: Final = "next.key"
RETIRED: Final = "retired.json"
ROTATED: Final = "rotated"
KEYS: Final = (CA_CRT, CA_KEY, NEXT_CRT, NEXT_KEY, RETIRED, ROTATED)

# A Secret that is deleted repeatedly must not let caBundles grow without a limit.
MOST_RETIRED: Final = 16

# The part of its lifetime after which a CA or leaf certificate is renewed.
RENEWED_AT: Final = 2 / 3


@dataclass(frozen=True)
class Retired:
    """A CA that no longer signs, until its last leaf certificate expires; then it leaves the caBundles."""

    certificate: x509.Certificate
    until: datetime
    leaving: bool = False


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
class CaState:
    """One content of the Secret."""

    issuer: Authority | None = None
    incoming: Authority | None = None
    retired: tuple[Retired, ...] = ()
    rotated: datetime | None = None

    def trust_bundle(self) -> bytes:
        """The caBundle for every webhook configuration: PEM, newest CA first."""
        retired = (each.certificate for each in self.retired if not each.leaving)
        return bundle(dict.fromkeys([*self._signing(), *retired]))

    def all_certificates(self) -> set[x509.Certificate]:
        """The certificates of every CA in the Secret."""
        return {*self._signing(), *(each.certificate for each in self.retired)}

    def _signing(self) -> list[x509.Certificate]:
        return [each.certificate for each in (self.incoming, self.issuer) if each]

    def encode(self) -> dict[str, bytes]:
        """The Secret's data; other keys must be absent."""
        data: dict[str, bytes] = {}
        for authority, crt, key in ((self.issuer, CA_CRT, CA_KEY), (self.incoming, NEXT_CRT, NEXT_KEY)):
            if authority:
                data |= {crt: authority.pem, key: authority.key_pem}
        if self.retired:
            pems = [bundle([each.certificate]).decode() for each in self.retired]
            plain = [
                {"certificate": pem, "until": each.until.isoformat(), "leaving": each.leaving}
                for pem, each in zip(pems, self.retired, strict=True)
            ]
            data[RETIRED] = json.dumps(plain).encode()
        if self.rotated:
            data[ROTATED] = self.rotated.isoformat().encode()
        return data

    @classmethod
    def decode(cls, data: Mapping[str, bytes], end: datetime) -> tuple[CaState, tuple[str, ...]]:
        """The valid parts of a Secret, and a clause about each invalid part.

        A CA whose certificate is valid but whose key is not is trusted until the end.
        """
        problems: list[str] = []
        authorities: list[Authority | None] = []
        retired: list[Retired] = []
        for crt, key in ((CA_CRT, CA_KEY), (NEXT_CRT, NEXT_KEY)):
            authority = None
            if crt in data or key in data:
                try:
                    authority = Authority.parse(data.get(crt, b""), data.get(key, b""))
                except CertificateError as error:
                    problems.append(f"{crt} and {key}: {error}")
                    retired += [Retired(each, end) for each in parse_bundle(data.get(crt, b""))]
            authorities.append(authority)
        try:
            # Who may write the Secret may write a megabyte of them; no replica writes more than these.
            retired += [_parse_retired(each) for each in json.loads(data.get(RETIRED, b"[]"))[:MOST_RETIRED]]
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{RETIRED} is not valid")
        try:
            rotated = _time(data[ROTATED].decode()) if ROTATED in data else None
        except ValueError:
            rotated = None
            problems.append(f"{ROTATED} is not a valid time")
        issuer, incoming = authorities
        # A Secret with retired CAs alone is valid: a replica leaves it so while it may not create a CA.
        if data and issuer is None and incoming is None and not retired and not problems:
            problems.append("the Secret contains no CA")
        return cls(issuer, incoming, tuple(retired), rotated), tuple(problems)


@dataclass(frozen=True)
class Observation:
    """What a replica knows besides the Secret.

    Attributes:
        now: the wall clock, in UTC.
        bundles: the caBundle (PEM, maybe empty) of every entry of every existing configuration, read before the Secret.
        serving_ca: the CA of the replica's valid leaf certificate; None if it has none.
        has_leaf: the replica needs no new leaf certificate now. Then the hosts of the issuer do not matter to it: in a
            rollout that renames the Service, other replicas may need another CA.
        is_rotation_requested: the annotation of the Secret requests a new CA.
        may_create: whether the replica may create a CA without a request.
        may_promote: whether the incoming CA has been in every caBundle for long enough to sign. If no replica can be
            serving yet, it is promoted without this.
        may_retire: whether the replica has known a retired CA for long enough to remove it.
    """

    now: datetime
    bundles: Collection[bytes]
    serving_ca: x509.Certificate | None = None
    has_leaf: bool = False
    is_rotation_requested: bool = False
    may_create: bool = True
    may_promote: bool = True
    may_retire: Callable[[Retired], bool] = lambda _: True


def plan_next_state(state: CaState, terms: Terms, observed: Observation) -> CaState:
    """The next content of the Secret; equal to the present one if there is nothing to do.

    A promotion waits for the next call before anything else changes, so that each write changes one thing.
    """
    trusted = [set(parse_bundle(pem)) for pem in observed.bundles]
    state = _adopt_unknown(state, terms, observed, {each for bundle_ in trusted for each in bundle_})
    if state.incoming and state.incoming.unusable((), observed.now):
        state = replace(_retire(state, state.incoming, observed.now + terms.overlap), incoming=None)
    elif (
        (incoming := state.incoming)
        and all(incoming.certificate in certificates for certificates in trusted)
        and (observed.may_promote or not (state.issuer or state.retired))
    ):
        promoted = replace(state, issuer=state.incoming, incoming=None, rotated=observed.now)
        return _retire(promoted, state.issuer, observed.now + terms.overlap) if state.issuer else promoted
    if state.incoming is None and _needs_new_ca(state, terms, observed):
        state = replace(state, incoming=Authority.new(terms.hosts, observed.now, terms.authority))
    return replace(state, retired=tuple(_age(state.retired, trusted, observed)))


def _needs_new_ca(state: CaState, terms: Terms, observed: Observation) -> bool:
    if observed.is_rotation_requested or not observed.may_create:
        return observed.is_rotation_requested
    issuer, hosts = state.issuer, () if observed.has_leaf else terms.hosts
    if issuer is None or issuer.unusable(hosts, observed.now):
        return True
    start, end = issuer.certificate.not_valid_before_utc, issuer.certificate.not_valid_after_utc
    return observed.now >= start + (end - start) * RENEWED_AT


def _adopt_unknown(state: CaState, terms: Terms, observed: Observation, trusted: Iterable[x509.Certificate]) -> CaState:
    """Retire the CAs that a caBundle trusts and the Secret does not contain, if they are bound to the same hosts.

    Otherwise, an attacker who can write a caBundle once could have a CA trusted for a week. If the Secret is empty, all
    are retired: the previous servers, with mounted certificates or those of another tool, can continue to serve.
    """
    known = state.all_certificates()
    foreign = set(trusted) - known - {observed.serving_ca}
    unknown = [each for each in foreign if not known or is_bound(each, terms.hosts)]
    unknown = [each for each in unknown if each.not_valid_after_utc > observed.now]
    unknown.sort(key=lambda each: (each.not_valid_before_utc, each.serial_number), reverse=True)
    if observed.serving_ca and observed.serving_ca not in known:
        unknown.insert(0, observed.serving_ca)
    room = max(0, MOST_RETIRED - len(state.retired))
    until = observed.now + terms.overlap
    return replace(state, retired=(*state.retired, *(Retired(each, until) for each in unknown[:room])))


def _retire(state: CaState, authority: Authority, until: datetime) -> CaState:
    retired = (*state.retired, Retired(authority.certificate, until))
    return replace(state, retired=tuple({each.certificate: each for each in retired}.values())[-MOST_RETIRED:])


def _age(
    retired: Iterable[Retired], trusted: Sequence[set[x509.Certificate]], observed: Observation
) -> Iterable[Retired]:
    for each in retired:
        if not each.leaving:
            yield replace(each, leaving=observed.now >= each.until and observed.may_retire(each))
        elif any(each.certificate in certificates for certificates in trusted):
            yield each


def _parse_retired(plain: Mapping[str, object]) -> Retired:
    (certificate,) = parse_bundle(str(plain["certificate"]).encode())
    return Retired(certificate, _time(str(plain["until"])), plain.get("leaving") is True)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("the time has no time zone")
    return time
