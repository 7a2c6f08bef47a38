"""The next change of the Secret, decision by decision; test_rotation has them in their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.authority import Authority, bundle, parse_bundle
from certs.state import KEYS, MOST_RETIRED, RETIRED, ROTATED, CaState, Observation, Retired, Terms, plan_next_state
from tests.certs.memory import HOST, START, TERMS


def authority() -> Authority:
    return Authority.new([HOST], START, TERMS.authority)


OLD, NEW, OTHER = (authority() for _ in range(3))


def plan(state: CaState, terms: Terms, now: datetime, bundles: Collection[bytes], **known: Any) -> CaState:
    return plan_next_state(state, terms, Observation(now, bundles, **known))


QUIET = CaState(OLD, None, (), START)


def test_a_secret_comes_back_as_it_was(golden: Callable[[str], None]) -> None:
    whole = CaState(OLD, NEW, (Retired(OTHER.certificate, START, leaving=True),), START)

    assert set(whole.encode()) == set(KEYS)
    assert CaState.decode(whole.encode(), START) == (whole, ())
    assert CaState.decode({}, START) == (CaState(), ())
    state, (problem,) = CaState.decode({"ca.crt": OLD.pem}, START)
    assert state == CaState(retired=(Retired(OLD.certificate, START),))
    golden(problem)


def test_what_can_not_be_read_is_told_and_the_rest_is_kept(golden: Callable[[str], None]) -> None:
    data = CaState(OLD, NEW, (), START).encode()
    for time in ("2026-01-01T00:00:00", "x", ""):
        found = CaState.decode({**data, ROTATED: time.encode()}, START)
        assert found[0] == CaState(OLD, NEW, (), None)
        golden("\n".join(found[1]))
    for broken in (b"[1]", b"[{}]", b"3", json.dumps([{"certificate": "", "until": "x"}]).encode(), b"\xff", b"{"):
        (problem,) = CaState.decode({**data, RETIRED: broken}, START)[1]
        assert RETIRED in problem
    golden(problem)
    golden("\n".join(CaState.decode({RETIRED: b"[]"}, START)[1]))


def test_nothing_to_do() -> None:
    assert plan(QUIET, TERMS, START, [OLD.pem, OLD.pem]) == QUIET
    assert QUIET.trust_bundle() == OLD.pem


def test_a_new_ca_signs_once_it_is_everywhere_and_has_spread() -> None:
    state = replace(QUIET, incoming=NEW)
    both = NEW.pem + OLD.pem

    assert plan(state, TERMS, START, [both, OLD.pem]) == state
    assert plan(state, TERMS, START, [both, both], may_promote=False) == state
    promoted = plan(state, TERMS, START + timedelta(days=1), [both, both])
    end = START + timedelta(days=1) + TERMS.overlap
    assert promoted == CaState(NEW, None, (Retired(OLD.certificate, end),), START + timedelta(days=1))
    first = CaState(None, NEW)
    assert plan(first, TERMS, START, [b"", NEW.pem], may_promote=False) == first
    assert plan(first, TERMS, START, [NEW.pem], may_promote=False).issuer == NEW, "nobody serves yet"
    assert plan(first, TERMS, START, []).issuer == NEW, "no configuration, nobody calls"


def test_another_ca_is_made_when_it_is_due_or_asked_for() -> None:
    late = START + TERMS.authority * 2 / 3

    assert plan(QUIET, TERMS, late - timedelta(days=1), [OLD.pem]).incoming is None
    assert plan(QUIET, TERMS, late, [OLD.pem]).incoming
    assert plan(QUIET, TERMS, late, [OLD.pem], may_create=False) == QUIET, "it made one a moment ago"
    assert plan(QUIET, TERMS, START, [OLD.pem], is_rotation_requested=True, may_create=False).incoming
    assert plan(QUIET, replace(TERMS, hosts=("elsewhere.svc",)), START, [OLD.pem]).incoming
    assert plan(QUIET, replace(TERMS, hosts=("elsewhere.svc",)), START, [OLD.pem], has_leaf=True) == QUIET
    assert plan(QUIET, TERMS, late, [OLD.pem], has_leaf=True).incoming
    assert plan(CaState(), TERMS, START, []).incoming
    waiting = replace(QUIET, incoming=NEW)
    assert plan(waiting, TERMS, START, [OLD.pem], is_rotation_requested=True) == waiting


def test_an_incoming_ca_that_is_no_good_is_not_promoted() -> None:
    expired = Authority.new([HOST], START - timedelta(days=9), timedelta(days=1))
    state = plan(replace(QUIET, incoming=expired), TERMS, START, [expired.pem + OLD.pem])

    assert (state.issuer, state.incoming) == (OLD, None)
    assert [each.certificate for each in state.retired] == [expired.certificate]


def test_a_retired_ca_leaves_after_its_time_and_is_forgotten_when_it_has_left() -> None:
    state = replace(QUIET, retired=(Retired(OTHER.certificate, START),))
    both = OLD.pem + OTHER.pem

    assert plan(state, TERMS, START - timedelta(seconds=1), [both]) == state
    assert plan(state, TERMS, START, [both], may_retire=lambda _: False) == state, "the clock may have jumped"
    leaving = plan(state, TERMS, START, [both])
    assert leaving.retired == (Retired(OTHER.certificate, START, leaving=True),)
    assert leaving.trust_bundle() == OLD.pem
    assert plan(leaving, TERMS, START, [OLD.pem, both]) == leaving
    assert plan(leaving, TERMS, START, [OLD.pem, OLD.pem]) == QUIET


def test_what_nobody_knows_of_is_kept_for_an_overlap() -> None:
    kept = Retired(OTHER.certificate, START + TERMS.overlap)

    assert plan(QUIET, TERMS, START, [OLD.pem, OLD.pem + OTHER.pem]).retired == (kept,)
    assert plan(QUIET, TERMS, START, [OLD.pem], serving_ca=OTHER.certificate).retired == (kept,)
    expired = Authority.new([HOST], START - timedelta(days=9), timedelta(days=1))
    assert plan(QUIET, TERMS, START, [OLD.pem + expired.pem]) == QUIET


def test_there_is_a_limit_to_what_is_kept_but_the_own_ca_is_always_among_it() -> None:
    many = b"".join(authority().pem for _ in range(MOST_RETIRED + 4))
    mine = Authority.new([HOST], START - timedelta(days=1), TERMS.authority).certificate
    state = plan(QUIET, TERMS, START, [many], serving_ca=mine)

    assert len(state.retired) == MOST_RETIRED
    assert mine in [each.certificate for each in state.retired]
    assert len(parse_bundle(state.trust_bundle())) == MOST_RETIRED + 1
    assert plan(state, TERMS, START, [many, state.trust_bundle()], serving_ca=mine) == state


def foreign(
    name: str | None = None, constraints: x509.NameConstraints | None = None, path_length: int | None = 0
) -> x509.Certificate:
    """A CA of another issuer, as similar to the CA of kubevirt-webhook as the test wants."""
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name or f"kubevirt-webhook CA {serial & 0xFFFFFFFF:08x}")]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(START)
        .not_valid_after(START + TERMS.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
    )
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


@pytest.mark.parametrize("certificate", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_ca_in_a_bundle_is_not_trusted_on(certificate: x509.Certificate) -> None:
    pem = bundle([OLD.certificate, certificate])

    assert plan(QUIET, TERMS, START, [pem, pem]) == QUIET
    assert certificate not in parse_bundle(QUIET.trust_bundle())


def test_one_that_is_bound_as_ours_are_is_kept_for_an_overlap() -> None:
    certificate = foreign(constraints=OURS)
    kept = plan(QUIET, TERMS, START, [bundle([OLD.certificate, certificate])])

    assert kept.retired == (Retired(certificate, START + TERMS.overlap),)


@pytest.mark.parametrize("certificate", FOREIGN.values(), ids=FOREIGN.keys())
def test_whoever_served_before_the_first_secret_is_trusted_until_it_has_been_replaced(
    certificate: x509.Certificate,
) -> None:
    """From mounted certificates, or another tool's, to managed ones: replicas still to be replaced serve on."""
    taken_over = plan(CaState(), TERMS, START, [bundle([certificate])])

    assert taken_over.retired == (Retired(certificate, START + TERMS.overlap),)
    assert taken_over.incoming is not None
