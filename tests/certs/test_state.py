"""The next change of the Secret, decision by decision; test_rotation has them in their order."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import Authority, bundle, parse_bundle
from certs.rotation import KEYS, RETIRED, ROTATED, Situation, Terms
from certs.source import certificate_builder, common_name
from certs.state import MOST_RETIRED, CaState, Retired, plan_next_state
from tests.certs.memory import HOST, START, TERMS
from tests.golden_files import Golden


def authority(*, expired: bool = False) -> Authority:
    since, life = (timedelta(days=9), timedelta(days=1)) if expired else (timedelta(), TERMS.authority)
    return Authority.new([HOST], START - since, life)


OLD, NEW, OTHER = (authority() for _ in range(3))
EXPIRED = authority(expired=True)


def plan(
    state: CaState, bundles: Collection[bytes], terms: Terms = TERMS, now: datetime = START, **known: Any
) -> CaState:
    """The next state, for a replica that has known all CAs for long, and otherwise has nothing but what is known."""
    known = {"is_rotation_requested": False, "signer": b"", "has_leaf": False, "may_create": True} | known
    is_serving = bool(known.pop("is_serving", known["signer"]))
    known = {"promotable": state.incoming.pem if state.incoming else b""} | known
    known = {"removable": frozenset(bundle([each.certificate]) for each in state.retired)} | known
    entries = {str(number): pem for number, pem in enumerate(bundles)}
    return plan_next_state(state, Situation(terms, {"it": entries}, None, is_serving=is_serving, **known), now)


QUIET = CaState(OLD, None, (), START)


def test_a_secret_comes_back_as_it_was(golden: Golden) -> None:
    whole = CaState(OLD, NEW, (Retired(OTHER.certificate, START, leaving=True),), START)
    assert (set(whole.encode()), CaState.decode(whole.encode(), START)) == (set(KEYS), (whole, ()))
    assert CaState.decode({}, START) == (CaState(), ())
    state, (problem,) = CaState.decode({"ca.crt": OLD.pem}, START)
    assert state == CaState(retired=(Retired(OLD.certificate, START),))
    golden(problem)


def test_what_can_not_be_read_is_told_and_the_rest_is_kept(golden: Golden) -> None:
    data = CaState(OLD, NEW, (), START).encode()
    for time in ("2026-01-01T00:00:00", "x", ""):
        found = CaState.decode({**data, ROTATED: time.encode()}, START)
        assert found[0] == CaState(OLD, NEW, (), None)
        golden("\n".join(found[1]))
    one = json.dumps([{"certificate": "", "until": "x"}]).encode()
    for broken in (b"[1]", b"[{}]", b"3", one, b"\xff", b"[" * 99_999, b"{"):
        (problem,) = CaState.decode({**data, RETIRED: broken}, START)[1]
        assert RETIRED in problem
    golden(problem)
    golden("\n".join(CaState.decode({RETIRED: b"[]"}, START)[1]))


def test_nothing_to_do() -> None:
    assert (plan(QUIET, [OLD.pem, OLD.pem]), QUIET.trust_bundle()) == (QUIET, OLD.pem)


def test_a_new_ca_signs_once_it_is_everywhere_and_has_spread() -> None:
    state = replace(QUIET, incoming=NEW)
    both = NEW.pem + OLD.pem
    assert (plan(state, [both, OLD.pem]), plan(state, [both, both], promotable=b"")) == (state, state)
    later = START + timedelta(days=1)
    kept = (Retired(OLD.certificate, later + TERMS.overlap),)
    assert plan(state, [both, both], now=later) == CaState(NEW, None, kept, later)
    first = CaState(None, NEW)
    assert plan(first, [b"", NEW.pem], promotable=b"") == first
    assert plan(first, [NEW.pem], promotable=b"").issuer == NEW, "nobody serves yet"
    assert plan(first, []).issuer == NEW, "no configuration, nobody calls"


def test_another_ca_is_made_when_it_is_due_or_asked_for() -> None:
    late, others = START + TERMS.authority * 2 / 3, replace(TERMS, hosts=("elsewhere.svc",))
    assert plan(QUIET, [OLD.pem], now=late - timedelta(days=1)).incoming is None
    assert plan(QUIET, [OLD.pem], now=late).incoming
    assert plan(QUIET, [OLD.pem], now=late, may_create=False) == QUIET, "it made one a moment ago"
    assert plan(QUIET, [OLD.pem], is_rotation_requested=True, may_create=False).incoming
    assert plan(QUIET, [OLD.pem], others).incoming
    assert plan(QUIET, [OLD.pem], others, has_leaf=True) == QUIET
    assert plan(QUIET, [OLD.pem], now=late, has_leaf=True).incoming
    assert plan(CaState(), []).incoming
    waiting = replace(QUIET, incoming=NEW)
    assert plan(waiting, [OLD.pem], is_rotation_requested=True) == waiting


def test_an_incoming_ca_that_is_no_good_is_not_promoted() -> None:
    state = plan(replace(QUIET, incoming=EXPIRED), [EXPIRED.pem + OLD.pem])
    assert (state.issuer, state.incoming) == (OLD, None)
    assert [each.certificate for each in state.retired] == [EXPIRED.certificate]


def test_a_retired_ca_leaves_after_its_time_and_is_forgotten_when_it_has_left() -> None:
    state = replace(QUIET, retired=(Retired(OTHER.certificate, START),))
    both = OLD.pem + OTHER.pem
    assert plan(state, [both], now=START - timedelta(seconds=1)) == state
    assert plan(state, [both], removable=frozenset()) == state, "the clock may have jumped"
    leaving = plan(state, [both])
    assert leaving.retired == (Retired(OTHER.certificate, START, leaving=True),)
    assert (leaving.trust_bundle(), plan(leaving, [OLD.pem, both])) == (OLD.pem, leaving)
    assert plan(leaving, [OLD.pem, OLD.pem]) == QUIET


def test_what_nobody_knows_of_is_kept_for_an_overlap() -> None:
    kept = Retired(OTHER.certificate, START + TERMS.overlap)
    assert plan(QUIET, [OLD.pem, OLD.pem + OTHER.pem]).retired == (kept,)
    assert plan(QUIET, [OLD.pem], signer=OTHER.pem).retired == (kept,)
    assert plan(QUIET, [OLD.pem], is_serving=True) == QUIET, "the CA that it serves with is not known"
    assert plan(QUIET, [OLD.pem + EXPIRED.pem]) == QUIET


def test_there_is_a_limit_to_what_is_kept_but_the_own_ca_is_always_among_it() -> None:
    many = b"".join(authority().pem for _ in range(MOST_RETIRED + 4))
    mine = Authority.new([HOST], START - timedelta(days=1), TERMS.authority)
    state = plan(QUIET, [many], signer=mine.pem)
    assert len(state.retired) == MOST_RETIRED
    assert mine.certificate in [each.certificate for each in state.retired]
    assert len(parse_bundle(state.trust_bundle())) == MOST_RETIRED + 1
    assert plan(state, [many, state.trust_bundle()], signer=mine.pem) == state


def foreign(
    name: str | None = None, constraints: x509.NameConstraints | None = None, path_length: int | None = 0
) -> x509.Certificate:
    """A CA of another issuer, as similar to the CA of kubevirt-webhook as the test wants."""
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    subject = common_name(name or f"kubevirt-webhook CA {serial & 0xFFFFFFFF:08x}")
    builder = certificate_builder(subject, subject, key, START, START + TERMS.authority, serial)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
    if constraints:
        builder = builder.add_extension(constraints, critical=True)
    return builder.sign(key, hashes.SHA256())


OURS = OLD.certificate.extensions.get_extension_for_class(x509.NameConstraints).value
ELSEWHERE = x509.NameConstraints(permitted_subtrees=[x509.DNSName("elsewhere.svc")], excluded_subtrees=None)
EVERYWHERE = x509.NameConstraints(permitted_subtrees=[x509.DNSName("")], excluded_subtrees=None)
FOREIGN = {
    "no constraints": foreign(),
    "another name": foreign("Evil CA", OURS),
    "a name without its serial number": foreign("kubevirt-webhook CA 00000000", OURS),
    "for other hosts": foreign(constraints=ELSEWHERE),
    "for every host": foreign(constraints=EVERYWHERE),
    "CAs beneath it": foreign(constraints=OURS, path_length=None),
    "another CA of ours for other hosts": Authority.new(["elsewhere.svc"], START, TERMS.authority).certificate,
}


@pytest.mark.control("foreign-ca-in-a-bundle")
@pytest.mark.parametrize("certificate", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_ca_in_a_bundle_is_not_trusted_on(certificate: x509.Certificate) -> None:
    pem = bundle([OLD.certificate, certificate])
    assert plan(QUIET, [pem, pem]) == QUIET
    assert certificate not in parse_bundle(QUIET.trust_bundle())


@pytest.mark.control("foreign-ca-in-a-bundle")
def test_one_that_is_bound_as_ours_are_is_kept_for_an_overlap() -> None:
    certificate = foreign(constraints=OURS)
    kept = plan(QUIET, [bundle([OLD.certificate, certificate])])
    assert kept.retired == (Retired(certificate, START + TERMS.overlap),)


@pytest.mark.control("foreign-ca-in-a-bundle")
@pytest.mark.parametrize("certificate", FOREIGN.values(), ids=FOREIGN.keys())
def test_whoever_served_before_the_first_secret_is_trusted_until_it_has_been_replaced(
    certificate: x509.Certificate,
) -> None:
    """From mounted certificates, or another tool's, to managed ones: replicas still to be replaced serve on."""
    taken_over = plan(CaState(), [bundle([certificate])])
    assert taken_over.retired == (Retired(certificate, START + TERMS.overlap),)
    assert taken_over.incoming is not None
