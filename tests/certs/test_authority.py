from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import Authority, _parse_kept, bundle, parse_bundle, verifies
from certs.pem import CertificateError, Pair
from certs.source import certificate_builder, common_name, self_signed
from tests.certs.memory import HOST, START
from tests.golden_files import Golden

YEAR, WEEK = timedelta(days=365), timedelta(days=7)
HOSTS = [[HOST], ["127.0.0.1"], ["localhost", "::1"]]


def authority(*hosts: str) -> Authority:
    return Authority.new(hosts or [HOST], START, YEAR)


def leaf_of(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


@pytest.mark.control("ca-key-leaks")
def test_a_ca_is_critical_about_what_it_may_sign() -> None:
    made = authority().certificate
    found = {each.oid: each for each in made.extensions}
    basic = found[x509.BasicConstraints.oid]
    usage = found[x509.KeyUsage.oid]
    assert (basic.critical, basic.value) == (True, x509.BasicConstraints(ca=True, path_length=0))
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    assert found[x509.NameConstraints.oid].critical
    assert isinstance(made.public_key(), ec.EllipticCurvePublicKey)
    assert made.not_valid_after_utc == START + YEAR
    assert made.subject != authority().certificate.subject


def test_a_leaf_can_serve_and_nothing_else() -> None:
    ca = authority()
    pair = ca.issue([HOST], START, WEEK)
    found = {each.oid: each.value for each in leaf_of(pair).extensions}
    assert list(found[x509.ExtendedKeyUsage.oid]) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not found[x509.BasicConstraints.oid].ca
    assert not found[x509.KeyUsage.oid].key_cert_sign
    assert found[x509.SubjectAlternativeName.oid].get_values_for_type(x509.DNSName) == [HOST]
    assert (pair.authority, pair.not_after) == (ca.pem, START + WEEK)
    assert ca.issue([HOST], START, 2 * YEAR).not_after == START + YEAR, "no longer than the CA"


@pytest.mark.parametrize("hosts", HOSTS, ids=str)
def test_verification(hosts: list[str]) -> None:
    ca = authority(*hosts)
    leaf = leaf_of(ca.issue(hosts, START, WEEK))
    assert all(verifies(ca.pem, leaf, host, START) for host in hosts)
    assert not verifies(ca.pem, leaf, "elsewhere.svc", START)
    assert not verifies(ca.pem, leaf, hosts[0], START + WEEK + timedelta(seconds=1))
    assert not verifies(authority(*hosts).pem, leaf, hosts[0], START)
    assert not verifies(b"", leaf, hosts[0], START)


@pytest.mark.control("impostor-of-the-webhook", "ca-key-leaks")
@pytest.mark.parametrize("hosts", HOSTS, ids=str)
@pytest.mark.parametrize("other", ["kubernetes.default.svc", "10.0.0.1", "2001:db8::1"])
def test_a_stolen_key_is_of_no_use_elsewhere(hosts: list[str], other: str, tmp_path: Path) -> None:
    """OpenSSL and Python both reject a leaf certificate for another name."""
    ca = authority(*hosts)
    (tmp_path / "ca").write_bytes(ca.pem)
    codes = []
    for each in (hosts, [other]):
        pair = ca.issue(each, START, WEEK)
        (tmp_path / "leaf").write_bytes(pair.certificate)
        command = ["openssl", "verify", "-attime", str(int(START.timestamp())), "-purpose", "sslserver"]
        command += ["-CAfile", str(tmp_path / "ca"), str(tmp_path / "leaf")]
        codes.append(subprocess.run(command, capture_output=True).returncode)
        assert verifies(ca.pem, leaf_of(pair), each[0], START) == (each == hosts)
    assert codes == [0, 2]


def test_what_is_kept_as_pem_comes_back() -> None:
    ca = authority()
    again = Authority.parse(ca.pem, ca.key_pem)
    assert (again, again.unusable([HOST], START)) == (ca, "")
    assert verifies(ca.pem, leaf_of(again.issue([HOST], START, WEEK)), HOST, START)


def test_what_is_wrong_with_a_ca() -> None:
    ca, other = authority(), authority()
    rsa_key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf = self_signed([HOST])
    for crt, key, said in (
        (b"", ca.key_pem, "no CA certificate"),
        (ca.pem + other.pem, ca.key_pem, "more than one CA"),
        (ca.pem, b"", "key is missing"),
        (ca.pem, rsa_key, "not an ECDSA"),
        (ca.pem, other.key_pem, "does not belong"),
        (leaf.certificate, leaf.key, "not a CA's"),
    ):
        with pytest.raises(CertificateError, match=said):
            Authority.parse(crt, key)


def test_when_a_ca_can_issue_nothing(golden: Golden) -> None:
    ca = authority()
    golden(ca.unusable([HOST], START + YEAR))
    golden(ca.unusable([HOST], START - timedelta(hours=1)))
    golden(ca.unusable(["elsewhere.svc"], START))


def test_a_ca_that_an_admin_brings_may_be_without_constraints() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name("ours")
    builder = certificate_builder(name, name, key, START, START + YEAR)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    assert Authority(builder.sign(key, hashes.SHA256()), key).unusable([HOST], START) == ""


@pytest.mark.parametrize("identifier", [b"not a digest of the key", None])
def test_leaves_name_the_key_as_the_ca_of_an_admin_does(identifier: bytes | None, tmp_path: Path) -> None:
    """Otherwise OpenSSL doesn't find who issued them; the name is often no SHA-1 of the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name("ours")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(START).not_valid_after(START + YEAR)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if identifier:
        builder = builder.add_extension(x509.SubjectKeyIdentifier(identifier), critical=False)
    ca = Authority(builder.sign(key, hashes.SHA256()), key)
    pair = ca.issue([HOST], START, WEEK)
    (tmp_path / "ca").write_bytes(ca.pem)
    (tmp_path / "leaf").write_bytes(pair.certificate)
    command = ["openssl", "verify", "-attime", str(int(START.timestamp())), "-purpose", "sslserver"]
    done = subprocess.run([*command, "-CAfile", tmp_path / "ca", tmp_path / "leaf"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = leaf_of(pair).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    public = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    assert found.key_identifier == (identifier or public.key_identifier)


CAS = [authority() for _ in range(4)]


@given(st.lists(st.sampled_from(CAS)), st.lists(st.binary(max_size=20) | st.sampled_from([CAS[0].pem[:-40]])))
def test_bundles_are_read_whatever_stands_between(cas: list[Authority], noise: list[bytes]) -> None:
    parts = [
        part for ca, before in zip(cas, [*noise, *[b"\n"] * len(cas)], strict=False) for part in (before, b"\n", ca.pem)
    ]
    found = parse_bundle(b"".join(parts))
    assert list(found) == list(dict.fromkeys(ca.certificate for ca in cas))
    assert parse_bundle(bundle(found)) == found


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", [b"-----BEGIN CERTIFICATE-----\n", b"-----BEGIN CERTIFICATE-----MIIB"])
def test_many_beginnings_take_no_time_and_no_memory(piece: bytes) -> None:
    """Others may write a MiB into a bundle. The square of the beginnings would hold up everything for minutes."""
    asked = _parse_kept.cache_info()
    assert parse_bundle(piece * (2**20 // len(piece))) == ()
    assert _parse_kept.cache_info() == asked


@given(st.binary())
def test_no_bundle_breaks_anything(data: bytes) -> None:
    assert parse_bundle(data) == ()
    assert parse_bundle(b"-----BEGIN CERTIFICATE-----\n" + data + b"\n-----END CERTIFICATE-----") == ()
