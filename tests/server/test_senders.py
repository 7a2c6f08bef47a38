"""Tokens of API servers: which prove who sends, when the keys are read, and what a made-up one costs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from tests.install.memory import InstallMemory
from tests.server.conftest import working
from tests.tokens import ISSUER, Key, claims, encode, key_set, sign
from tests.waiting import until
from webhook.k8s.client.api import NO_QUERY, ApiConnectionError
from webhook.server import senders
from webhook.server.senders import DISCOVERY_PATH, KEYS_PATH, MAX_TOKEN_BYTES, SenderVerifier

URL = "https://kubevirt-webhook.kubevirt-webhook.svc:443"
PATH = "/validate/migration/virtualmachineinstancemigrations/enforce"
GROUP = "kubevirt.io"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
OWN = [(MUTATING, "kubevirt-webhook"), (MUTATING, "zz-kubevirt-webhook"), (VALIDATING, "kubevirt-webhook")]
NOW = 1_800_000_000.0
KEY = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
DISCOVERY = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}{KEYS_PATH}"}


class KeyTransport(InstallMemory):
    """An API server that publishes what it says, by path: JSON, a status, or an error."""

    def __init__(self, keys: Any, discovery: Any = DISCOVERY) -> None:
        super().__init__()
        self.published: dict[str, Any] = {DISCOVERY_PATH: discovery, KEYS_PATH: keys}
        self.reads: list[str] = []

    async def get(self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = 0) -> tuple[int, bytes]:
        self.reads.append(path)
        answer = self.published[path]
        if isinstance(answer, ApiConnectionError):
            raise answer
        return (answer, b"{}") if isinstance(answer, int) else (200, json.dumps(answer).encode())

    async def request(self, method: str, path: str, *_arguments: Any, **_options: Any) -> tuple[int, bytes]:
        raise AssertionError(f"nothing is written, and no token sent: {path}")


async def knowing(**keys: Key) -> SenderVerifier:
    """A verifier that has read these keys."""
    verifier, transport = SenderVerifier(URL, OWN, lambda: NOW), KeyTransport(key_set(**keys))
    async with working(verifier.follow(transport, list[str]().append)):
        assert verify(verifier, sign(KEY, claims(URL, now=NOW), "not-yet")) is None
        await until(lambda: KEYS_PATH in transport.reads and verifier._keys, "the keys to be read")
    verifier.results.clear()
    return verifier


def verify(verifier: SenderVerifier, token: str, group: str = GROUP) -> float | None:
    return verifier.verify(f"Bearer {token}", PATH, group)


CURVES = {curve.name: ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())}


@pytest.mark.parametrize("key", [RSA, *CURVES.values()], ids=["rsa", *CURVES])
@pytest.mark.parametrize(
    "said",
    [
        claims([URL], now=NOW),
        claims(f"{URL}/", now=NOW),
        claims(["other", URL + PATH], "kubevirt-webhook", VALIDATING.lower(), now=NOW, groups=(GROUP,)),
        # Clocks differ by seconds, and an API server's may be ahead.
        claims(URL, now=NOW, nbf=NOW + 30),
    ],
)
async def test_a_token_of_an_api_server_counts_until_it_expires(key: Key, said: dict[str, Any]) -> None:
    verifier = await knowing(k1=key, k2=KEY)
    before = time.monotonic()
    until_then = verify(verifier, sign(key, said))
    assert until_then is not None
    assert before <= until_then - 540 <= time.monotonic()
    assert verifier.results == {"verified": 1}


ORDINARY = {"namespace": "team-a", "serviceaccount": {"name": "default"}, "pod": {"name": "a"}}
STRANGER = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.control("stolen-tokens")
@pytest.mark.parametrize(
    ("token", "result"),
    [
        # Stolen: dispensed by the same API server, for another webhook, endpoint, configuration or group.
        (sign(KEY, claims("https://other.team-a.svc:443/", now=NOW)), "other-audience"),
        (sign(KEY, claims(URL + PATH.replace("enforce", "observe"), now=NOW)), "other-audience"),
        (sign(KEY, claims(f"{URL}0", now=NOW)), "other-audience"),
        (sign(KEY, claims([], now=NOW)), "other-audience"),
        (sign(KEY, claims(URL, "other", now=NOW)), "not-bound"),
        (sign(KEY, claims(URL, "zz-kubevirt-webhook", VALIDATING.lower(), now=NOW)), "not-bound"),
        (sign(KEY, claims(URL, now=NOW, groups=("apps",))), "not-attested"),
        (sign(KEY, claims(URL, now=NOW, groups=())), "not-attested"),
        # An ordinary one, which any pod can have with any audience.
        (sign(KEY, {**claims(URL, now=NOW), "kubernetes.io": ORDINARY}), "not-bound"),
        (sign(KEY, {key: value for key, value in claims(URL, now=NOW).items() if key != "kubernetes.io"}), "not-bound"),
        # Expired, or of a time that has not come.
        (sign(KEY, claims(URL, now=NOW - 541)), "expired"),
        (sign(KEY, claims(URL, now=NOW, exp=NOW)), "expired"),
        (sign(KEY, claims(URL, now=NOW, nbf=NOW + 61)), "expired"),
        # Foreign: of another cluster, under this one's key ID or issuer.
        (sign(STRANGER, claims(URL, now=NOW)), "invalid-signature"),
        (sign(KEY, claims(URL, now=NOW, iss="https://other.example")), "invalid-signature"),
        # Made up.
        (sign(KEY, claims(URL, now=NOW), alg="none").rpartition(".")[0] + ".", "invalid-signature"),
        (sign(KEY, claims(URL, now=NOW), alg="HS256"), "invalid-signature"),
        (sign(KEY, claims(URL, now=NOW), "rsa", alg="ES256"), "invalid-signature"),
        (sign(KEY, claims(URL, now=NOW))[:-2], "invalid-signature"),
        (sign(KEY, claims(URL, now=NOW)).replace(".", f".{encode(b'{}')}.", 1), "malformed"),
        (sign(KEY, claims({"a": 1}, now=NOW)), "malformed"),
        (sign(KEY, claims(URL, now=NOW, exp="soon")), "malformed"),
        (f"{encode(b'{}')}.{encode(b'[' * 20_000)}.", "malformed"),
        (sign(KEY, claims(URL, now=NOW), [1]), "malformed"),
        # Longer than any that is issued: to decode it would cost more than a review of as many bytes.
        (sign(KEY, claims(URL, now=NOW, other="a" * MAX_TOKEN_BYTES)), "malformed"),
        (sign(KEY, claims(URL, now=NOW, exp=10**400)), "malformed"),
        ("a.b.c", "malformed"),
        ("", "malformed"),
    ],
    # A signature is another one each time.
    ids=lambda value: value if len(value) < 20 else "token",
)
async def test_what_proves_nothing(token: str, result: str) -> None:
    verifier = await knowing(k1=KEY, rsa=RSA)
    assert (verify(verifier, token), verifier.results) == (0.0, {result: 1})


async def test_a_token_of_any_depth_is_an_answer() -> None:
    """What can just be decoded the first time may be too deep when it is verified, some calls further down."""
    verifier, right = await knowing(k1=KEY), sign(KEY, claims(URL, now=NOW)).partition(".")
    start = b'{"alg":"ES256","kid":"k1","x":'
    for depth in range(700, 1000):
        header = encode(start + b"[" * depth + b"]" * depth + b"}")
        assert verify(verifier, header + right[1] + right[2]) == 0.0


async def test_no_token_without_its_scheme_and_none_of_another_group_counts() -> None:
    verifier = await knowing(k1=KEY)
    token = sign(KEY, claims(URL, now=NOW, groups=(GROUP,)))
    assert verifier.verify(f"Basic {token}", PATH, GROUP) == 0.0
    # Pods are of the core group, for which only an API server's own token can be had (its attestation is *).
    assert verify(verifier, token, "") == 0.0
    assert verify(verifier, token)


@pytest.mark.control("stolen-tokens")
async def test_only_a_token_that_looks_right_has_the_keys_read_and_not_each_of_them() -> None:
    verifier, transport = SenderVerifier(URL, OWN, lambda: NOW), KeyTransport(key_set(k1=KEY))
    right, told = sign(KEY, claims(URL, now=NOW)), list[str]()
    async with working(verifier.follow(transport, told.append)):
        assert verify(verifier, sign(KEY, claims(URL, "other", now=NOW))) == 0.0
        await asyncio.sleep(0.01)
        assert transport.reads == []

        assert verify(verifier, right) is None
        await until(lambda: verify(verifier, right), "the token to be verified")
        # A key of another name may be a new one, but so may be that of any other caller.
        for number in range(3):
            assert verify(verifier, sign(KEY, claims(URL, now=NOW), f"new-{number}")) is None
            await asyncio.sleep(0.01)
        assert (transport.reads, told) == ([DISCOVERY_PATH, KEYS_PATH], [])


MALFORMED_KEYS = [
    {"kty": "oct", "kid": "k1", "k": "c2VjcmV0"},
    {"kty": "EC", "kid": "k1", "crv": "P-256", "x": "AQ", "y": "AQ"},
    {"kty": "EC", "kid": "k1", "crv": "P-1", "x": "AQ", "y": "AQ"},
    {"kty": "RSA", "kid": "k1", "n": "AQ", "e": "A"},
    key_set(k1=KEY)["keys"][0] | {"kid": ["k1"]},
]


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        (DISCOVERY_PATH, 403, f"the API server answered 403 to get {DISCOVERY_PATH}"),
        (KEYS_PATH, 404, f"the API server answered 404 to get {KEYS_PATH}"),
        (KEYS_PATH, ApiConnectionError("connection refused"), "connection refused"),
        (DISCOVERY_PATH, {"issuer": 1}, "the API server's issuer cannot be decoded"),
        (KEYS_PATH, [], "the API server's keys cannot be decoded"),
        (KEYS_PATH, {"keys": MALFORMED_KEYS}, ""),
    ],
)
async def test_keys_that_cannot_be_read_are_told_once_and_the_former_ones_count(
    monkeypatch: pytest.MonkeyPatch, path: str, answer: Any, why: str
) -> None:
    monkeypatch.setattr(senders, "READ_SECONDS", 0.0)
    verifier, transport = SenderVerifier(URL, OWN, lambda: NOW), KeyTransport(key_set(k1=KEY))
    good = transport.published[path]
    transport.published[path] = answer
    right, other = sign(KEY, claims(URL, now=NOW)), sign(KEY, claims(URL, now=NOW), "k2")
    told: list[str] = []
    async with working(verifier.follow(transport, told.append)):

        async def again(token: str) -> None:
            before = transport.reads.count(DISCOVERY_PATH)
            assert verify(verifier, token) is None
            await until(lambda: transport.reads.count(DISCOVERY_PATH) > before and not verifier._needs_keys.is_set())

        for _ in range(3):
            await again(right)
        assert told == [why] * bool(why)

        transport.published[path] = good
        await until(lambda: verify(verifier, right), "the keys to be read again")
        transport.published[path] = answer if why else good
        for _ in range(2):
            await again(other)
        assert verify(verifier, right), "the former keys"
        assert told == [why] * (2 if why else 0)


async def test_keys_are_read_again_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was withdrawn ceases to count."""
    monkeypatch.setattr(senders, "READ_SECONDS", 0.0)
    monkeypatch.setattr(senders, "KEPT_SECONDS", 0.0)
    verifier, transport = await knowing(k1=KEY), KeyTransport(key_set(k2=STRANGER))
    async with working(verifier.follow(transport, list[str]().append)):
        await until(lambda: verify(verifier, sign(KEY, claims(URL, now=NOW))) is None, "the key to be gone")


@pytest.mark.control("stolen-tokens")
@given(st.text(max_size=60) | st.lists(st.binary(max_size=40).map(encode), min_size=2, max_size=4).map(".".join))
def test_no_header_is_an_error(text: str) -> None:
    verifier = SenderVerifier(URL, OWN, lambda: NOW)
    assert (verifier.verify(text, PATH, GROUP), verifier.verify(f"Bearer {text}", PATH, GROUP)) == (0.0, 0.0)
    assert verifier.results == {"malformed": 2}
