"""What the Secret holds, and what a replica does next. Pure, but for the keys that are made.

A CA is first `incoming`: published, without a leaf. Once every caBundle has it, it becomes the `issuer`, and the issuer
before it is `retired`: trusted until no leaf of it can be valid any more. Then it is `leaving`, and is forgotten once
no caBundle has it. A CA that a caBundle trusts and the Secret does not hold is retired, not dropped, if it is bound as
`Authority.new` makes it: a replica may be serving with it, and the Secret may have been edited. Any other is dropped,
unless the Secret holds nothing yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from certs.authority import Authority, bundle, is_bound, is_bundle_of, parse_bundle, verifies
from certs.pem import CertificateError
from certs.rotation import (
    CA_CRT,
    CA_KEY,
    KEYS,
    NEXT_CRT,
    NEXT_KEY,
    RENEWED_AT,
    RETIRED,
    ROTATED,
    Plan,
    RotationEvent,
    Situation,
)

# A Secret that is deleted repeatedly must not let caBundles grow without a limit.
MOST_RETIRED: Final = 16


@dataclass(frozen=True)
class Retired:
    """A CA that no longer signs, until its last leaf certificate expires; then it leaves the caBundles."""

    certificate: x509.Certificate
    until: datetime
    leaving: bool = False


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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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


def plan_next_state(state: CaState, situation: Situation, now: datetime) -> CaState:
    """The next content of the Secret; equal to the present one if there is nothing to do.

    A promotion waits for the next call before anything else changes, so that each write changes one thing.
    """
    terms, trusted = situation.terms, _trusted(situation)
    state = _adopt_unknown(state, situation, now, set().union(*trusted))
    incoming = state.incoming
    if incoming and incoming.unusable((), now):
        state = replace(_retire(state, incoming, now + terms.overlap), incoming=None)
    elif (
        incoming
        and all(incoming.certificate in certificates for certificates in trusted)
        # While no replica can be serving yet, it need not have been in the caBundles for long.
        and (incoming.pem == situation.promotable or not (state.issuer or state.retired))
    ):
        promoted = replace(state, issuer=incoming, incoming=None, rotated=now)
        return _retire(promoted, state.issuer, now + terms.overlap) if state.issuer else promoted
    if state.incoming is None and _needs_new_ca(state, situation, now):
        state = replace(state, incoming=Authority.new(terms.hosts, now, terms.authority))
    return replace(state, retired=tuple(_age(state.retired, trusted, situation, now)))


def _trusted(situation: Situation) -> list[set[x509.Certificate]]:
    """The CAs of each different caBundle."""
    bundles = {pem for entries in situation.bundles.values() if entries for pem in entries.values()}
    return [set(parse_bundle(pem)) for pem in bundles]


def _needs_new_ca(state: CaState, situation: Situation, now: datetime) -> bool:
    if situation.is_rotation_requested or not situation.may_create:
        return situation.is_rotation_requested
    # With a leaf certificate the hosts of the issuer do not matter: in a rollout that renames the Service, other
    # replicas may need another CA.
    issuer, hosts = state.issuer, () if situation.has_leaf else situation.terms.hosts
    return issuer is None or bool(issuer.unusable(hosts, now)) or now >= _renewal(issuer)


def _adopt_unknown(state: CaState, situation: Situation, now: datetime, trusted: set[x509.Certificate]) -> CaState:
    """Retire the CAs that a caBundle trusts and the Secret does not contain, if they are bound to the same hosts.

    Otherwise, an attacker who can write a caBundle once could have a CA trusted for a week. If the Secret is empty, all
    are retired: the previous servers, with mounted certificates or those of another tool, can continue to serve.
    """
    certificates, terms = state.all_certificates(), situation.terms
    serving = next(iter(parse_bundle(situation.signer)), None) if situation.is_serving else None
    unknown = [
        each
        for each in trusted - certificates - {serving}
        if each.not_valid_after_utc > now and (not certificates or is_bound(each, terms.hosts))
    ]
    unknown.sort(key=lambda each: (each.not_valid_before_utc, each.serial_number), reverse=True)
    if serving and serving not in certificates:
        unknown.insert(0, serving)
    room = max(0, MOST_RETIRED - len(state.retired))
    until = now + terms.overlap
    return replace(state, retired=(*state.retired, *(Retired(each, until) for each in unknown[:room])))


def _retire(state: CaState, authority: Authority, until: datetime) -> CaState:
    retired = (*state.retired, Retired(authority.certificate, until))
    return replace(state, retired=tuple({each.certificate: each for each in retired}.values())[-MOST_RETIRED:])


def _age(
    retired: Iterable[Retired], trusted: Sequence[set[x509.Certificate]], situation: Situation, now: datetime
) -> Iterable[Retired]:
    for each in retired:
        if not each.leaving:
            yield replace(each, leaving=now >= each.until and bundle([each.certificate]) in situation.removable)
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


# How long a plan stands at most: while it has nothing to do, and while what it has to do fails.
_QUIET: Final = timedelta(hours=1)
_FAILING: Final = timedelta(minutes=1)


def plan(situation: Situation, now: datetime, later: datetime) -> Plan:
    """What a replica does next in a situation.

    Args:
        situation: what the replica has read, and what it has by itself.
        now: the wall clock before the Secret was read, in UTC.
        later: the wall clock after it was read.
    """
    terms, data = situation.terms, situation.secret or {}
    state, problems = CaState.decode(data, now + terms.overlap)
    trusted, incoming = _trusted(situation), state.incoming
    base = Plan(
        until=now,
        problems=problems if data else (),
        retired=tuple(bundle([each.certificate]) for each in state.retired),
        published=incoming.pem if incoming and all(incoming.certificate in each for each in trusted) else None,
    )
    next_state = plan_next_state(state, situation, now)
    if next_state != state or (problems and situation.secret is not None):
        makes_ca, encoded = next_state.incoming is not None and next_state.incoming != incoming, next_state.encode()
        if makes_ca or situation.secret is None or encoded != {key: data[key] for key in KEYS if key in data}:
            changes = tuple(_changes(state, next_state))
            return replace(base, until=now + _FAILING, secret=encoded, makes_ca=makes_ca, changes=changes)
    result = _serve(base, state, situation, now, later)
    ca_bundle = state.trust_bundle()
    certificates = parse_bundle(ca_bundle)
    written = {
        name: {entry: ca_bundle for entry, pem in entries.items() if not is_bundle_of(pem, certificates)}
        for name, entries in situation.bundles.items()
        if entries and certificates
    }
    written = {name: entries for name, entries in written.items() if entries}
    until = now + (_FAILING if result.leaf or written else _QUIET)
    if result.is_rejected:
        until = now
    return replace(
        result,
        until=min([until, *(each for each in _times(state, trusted) if each > now)]),
        bundles=written,
        authority_end=state.issuer.certificate.not_valid_after_utc if state.issuer else None,
        rotated=state.rotated,
    )


def _serve(base: Plan, state: CaState, situation: Situation, now: datetime, later: datetime) -> Plan:
    """The plan, with a new leaf certificate, if one is due and every caBundle verifies it."""
    issuer, terms = state.issuer, situation.terms
    if issuer is None or (why := issuer.unusable(terms.hosts, now)):
        return replace(base, problem=why if issuer else "the new CA is not in every caBundle yet")
    same = situation.signer == issuer.pem
    if same and situation.has_leaf:
        return base
    published = {name: entries.values() for name, entries in situation.bundles.items() if entries}
    lacking = [
        name for name, pems in published.items() if any(issuer.certificate not in parse_bundle(pem) for pem in pems)
    ]
    if lacking and not same:
        return replace(base, problem=f"the caBundles of {', '.join(lacking)} lack the CA")
    pair = issuer.issue(terms.hosts, now, terms.leaf)
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    checked = {pair.authority} if same else {pair.authority, *(pem for pems in published.values() for pem in pems)}
    if not all(verifies(each, leaf, host, later) for each in checked for host in terms.hosts):
        why = "the caBundles do not verify the new certificate; the previous one is kept"
        return replace(base, problem=why, is_rejected=True)
    return replace(base, leaf=pair, signer_name=_common_name(issuer.certificate))


def _times(state: CaState, trusted: Iterable[set[x509.Certificate]]) -> Iterator[datetime]:
    """When another plan may be due, though nothing else has changed."""
    for certificate in state.all_certificates().union(*trusted):
        yield from (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    if state.issuer:
        yield _renewal(state.issuer)
    yield from (each.until for each in state.retired)


def _changes(old: CaState, new: CaState) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The events of a change of the Secret, with their fields."""
    if new.incoming and new.incoming != old.incoming:
        yield RotationEvent.CA_CREATED, {"ca": _common_name(new.incoming.certificate)}
    if new.issuer and new.issuer != old.issuer:
        yield RotationEvent.CA_PROMOTED, {"ca": _common_name(new.issuer.certificate)}
    before, after = ({each.certificate for each in state.retired if not each.leaving} for state in (old, new))
    if before - after:
        yield RotationEvent.CAS_REMOVED, {"cas": sorted(map(_common_name, before - after))}


def _renewal(issuer: Authority) -> datetime:
    start, end = issuer.certificate.not_valid_before_utc, issuer.certificate.not_valid_after_utc
    return start + (end - start) * RENEWED_AT


def _common_name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string().removeprefix("CN=")
