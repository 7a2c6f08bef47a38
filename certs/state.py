"""What the Secret holds, and which change of it comes next. Pure, but for the keys that are made.

A CA is first `incoming`: published, without a leaf. Once every caBundle has it, it becomes the `issuer`, and the issuer
before it is `retired`: trusted until no leaf of it can be valid any more. Then it is `leaving`, and is forgotten once
no caBundle has it. A CA that a caBundle trusts and the Secret doesn't know is retired, not dropped, if it is bound as
ours are: somebody may be serving with it, whoever edited the Secret. Any other is dropped, unless the Secret holds
nothing yet.
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

# A Secret that is deleted again and again must not make caBundles grow without an end.
MOST_RETIRED: Final = 16

# A CA or leaf is renewed when two thirds of its life are over.
RENEWED_AT: Final = 2 / 3


@dataclass(frozen=True)
class Retired:
    """A CA that signs no more.

    Attributes:
        until: from then on no leaf of it is valid.
        leaving: caBundles are to be without it.
    """

    certificate: x509.Certificate
    until: datetime
    leaving: bool = False


@dataclass(frozen=True)
class Terms:
    """For which hosts and how long certificates are made.

    Attributes:
        hosts: the names by which the API server calls the server.
        authority: life of a CA.
        leaf: life of a serving certificate.
        skew: by how much the replicas' clocks may differ.
    """

    hosts: tuple[str, ...]
    authority: timedelta
    leaf: timedelta
    skew: timedelta = timedelta(minutes=5)

    @property
    def overlap(self) -> timedelta:
        """How long a CA stays trusted after its last signature."""
        return self.leaf + self.skew


@dataclass(frozen=True)
class CaState:
    """One content of the Secret."""

    issuer: Authority | None = None
    incoming: Authority | None = None
    retired: tuple[Retired, ...] = ()
    rotated: datetime | None = None

    def trust_bundle(self) -> bytes:
        """The caBundle that every configuration is to have: PEM, newest first."""
        signing = [each.certificate for each in (self.incoming, self.issuer) if each]
        return bundle(dict.fromkeys([*signing, *(each.certificate for each in self.retired if not each.leaving)]))

    def all_certificates(self) -> set[x509.Certificate]:
        """Every CA that it says something of."""
        signing = {each.certificate for each in (self.incoming, self.issuer) if each}
        return signing | {each.certificate for each in self.retired}

    def encode(self) -> dict[str, bytes]:
        """The Secret's data; a key that isn't there is to be absent."""
        data: dict[str, bytes] = {}
        for authority, crt, key in ((self.issuer, CA_CRT, CA_KEY), (self.incoming, NEXT_CRT, NEXT_KEY)):
            if authority:
                data |= {crt: authority.pem, key: authority.key_pem}
        if self.retired:
            data[RETIRED] = json.dumps([_plain(each) for each in self.retired]).encode()
        if self.rotated:
            data[ROTATED] = self.rotated.isoformat().encode()
        return data

    @classmethod
    def decode(cls, data: Mapping[str, bytes], end: datetime) -> tuple[CaState, tuple[str, ...]]:
        """What can be read of a Secret, and what is wrong with the rest, as clauses.

        Args:
            data: the values of the Secret by key, decoded from base64.
            end: the time until which a CA is trusted whose certificate is there without its key.
        """
        problems: list[str] = []
        found: list[Authority | None] = []
        retired: list[Retired] = []
        for crt, key in ((CA_CRT, CA_KEY), (NEXT_CRT, NEXT_KEY)):
            authority = None
            if crt in data or key in data:
                try:
                    authority = Authority.parse(data.get(crt, b""), data.get(key, b""))
                except CertificateError as error:
                    problems.append(f"{crt} and {key}: {error}")
                    retired += [Retired(each, end) for each in parse_bundle(data.get(crt, b""))]
            found.append(authority)
        try:
            retired += [_parse_retired(each) for each in json.loads(data.get(RETIRED, b"[]"))]
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{RETIRED}: not as we wrote it")
        try:
            rotated = _time(data[ROTATED].decode()) if ROTATED in data else None
        except ValueError:
            rotated = None
            problems.append(f"{ROTATED}: not a time")
        issuer, incoming = found
        # With retired ones alone it is as a replica leaves it that may not make a CA now.
        if data and issuer is None and incoming is None and not retired and not problems:
            problems.append("it holds no CA")
        return cls(issuer, incoming, tuple(retired), rotated), tuple(problems)


def plan_next_state(
    state: CaState,
    terms: Terms,
    now: datetime,
    bundles: Collection[bytes],
    *,
    mine: x509.Certificate | None = None,
    content: bool = False,
    asked: bool = False,
    may_make: bool = True,
    may_promote: bool = True,
    may_retire: Callable[[Retired], bool] = lambda _: True,
) -> CaState:
    """The content of the Secret that comes next; equal to the present one where there is nothing to do.

    Args:
        state: the Secret, read after `bundles`: what those lack of it is still to be written.
        terms: for which hosts and how long certificates are made.
        now: the present time.
        bundles: the caBundle (PEM, maybe empty) of every entry of every configuration that exists.
        mine: the CA of the leaf that the caller serves with, while that leaf is valid.
        content: the caller needs no new leaf for now. Then the hosts of a CA do not matter to it: in a rollout that
            renames the Service, other replicas may need another CA than the caller.
        asked: whether an admin requested another CA.
        may_make: whether the caller may make a CA without such a request.
        may_promote: whether the incoming CA has been in every caBundle for long enough to sign. Before any replica can
            be serving, it may sign at once.
        may_retire: whether the caller has known a retired CA for long enough to remove it.
    """
    trusting = [set(parse_bundle(each)) for each in bundles]
    state = _adopt(state, terms, now, mine, {each for one in trusting for each in one})
    if state.incoming and state.incoming.unusable((), now):
        state = replace(_retire(state, state.incoming, now + terms.overlap), incoming=None)
    elif (
        state.incoming
        and all(state.incoming.certificate in one for one in trusting)
        and (may_promote or not (state.issuer or state.retired))
    ):
        promoted = replace(state, issuer=state.incoming, incoming=None, rotated=now)
        return _retire(promoted, state.issuer, now + terms.overlap) if state.issuer else promoted
    if state.incoming is None and (asked or (may_make and _due(state.issuer, () if content else terms.hosts, now))):
        state = replace(state, incoming=Authority.new(terms.hosts, now, terms.authority))
    return replace(state, retired=tuple(_age(state.retired, now, trusting, may_retire)))


def _due(issuer: Authority | None, hosts: Sequence[str], now: datetime) -> bool:
    if issuer is None or issuer.unusable(hosts, now):
        return True
    certificate = issuer.certificate
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * RENEWED_AT


def _adopt(
    state: CaState, terms: Terms, now: datetime, mine: x509.Certificate | None, found: Iterable[x509.Certificate]
) -> CaState:
    """Keep what a caBundle trusts and the Secret does not hold for an overlap, if `Authority.new` can have made it.

    A user who may write caBundles for a moment must not get a CA of theirs trusted for a week. Where the Secret holds
    nothing yet, the former source (mounted certificates, or another tool) may serve on: all of it is kept.
    """
    known = state.all_certificates()
    unknown = [
        each
        for each in found
        if each not in known
        and each != mine
        and each.not_valid_after_utc > now
        and (not known or is_bound(each, terms.hosts))
    ]
    unknown.sort(key=lambda each: (each.not_valid_before_utc, each.serial_number), reverse=True)
    if mine and mine not in known:
        unknown.insert(0, mine)
    room = max(0, MOST_RETIRED - len(state.retired))
    return replace(state, retired=(*state.retired, *(Retired(each, now + terms.overlap) for each in unknown[:room])))


def _retire(state: CaState, authority: Authority, until: datetime) -> CaState:
    return replace(state, retired=_cap((*state.retired, Retired(authority.certificate, until))))


def _cap(retired: Sequence[Retired]) -> tuple[Retired, ...]:
    by_certificate = {each.certificate: each for each in retired}
    return tuple(by_certificate.values())[-MOST_RETIRED:]


def _age(
    retired: Iterable[Retired],
    now: datetime,
    trusting: Sequence[set[x509.Certificate]],
    may_retire: Callable[[Retired], bool],
) -> Iterable[Retired]:
    for each in retired:
        if not each.leaving:
            yield replace(each, leaving=now >= each.until and may_retire(each))
        elif any(each.certificate in one for one in trusting):
            yield each


def _plain(retired: Retired) -> dict[str, object]:
    pem = bundle([retired.certificate]).decode()
    return {"certificate": pem, "until": retired.until.isoformat(), "leaving": retired.leaving}


def _parse_retired(plain: Mapping[str, object]) -> Retired:
    (certificate,) = parse_bundle(str(plain["certificate"]).encode())
    return Retired(certificate, _time(str(plain["until"])), plain.get("leaving") is True)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without its zone")
    return time
