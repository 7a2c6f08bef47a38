"""Whether a bearer token proves that an API server sends a review (KEP-6060, Kubernetes 1.37).

Such a token is issued to a service account that may ``attest`` to API groups. It names the webhook's URL as its
audience, is bound to a webhook configuration, and expires within ten minutes (``TokenREST.Create`` in
pkg/registry/core/serviceaccount/storage/token.go). It is verified by the keys that the API server publishes, so that it
is sent nowhere; these are read once a token comes that looks right, and no review waits for them.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from webhook.errors import Unavailable
from webhook.k8s.client.api import UNDECODABLE, Transport, await_answer, decode

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"
ATTESTATION: Final = "admissionReviewAPIGroups"
# A token with an unknown key may be made up: the keys are read no more often than this, and again after some time.
READ_SECONDS: Final = 60.0
KEPT_SECONDS: Final = 600.0
_DEADLINE_SECONDS: Final = 10.0
_MAX_BYTES: Final = 1024 * 1024
_MAX_KEYS: Final = 64
# Go's go-jose, and so the API server itself, allows as much between two clocks; for the expiry no clock is trusted.
_LEEWAY_SECONDS: Final = 60.0

Result: TypeAlias = Literal[
    "verified", "malformed", "not-bound", "not-attested", "other-audience", "expired", "no-key", "invalid-signature"
]
# Those of RFC 7518 that service account tokens have (pkg/serviceaccount/jwt.go and externaljwt of Kubernetes).
_CURVES: Final[Mapping[str, tuple[str, type[ec.EllipticCurve], type[hashes.HashAlgorithm]]]] = {
    "P-256": ("ES256", ec.SECP256R1, hashes.SHA256),
    "P-384": ("ES384", ec.SECP384R1, hashes.SHA384),
    "P-521": ("ES512", ec.SECP521R1, hashes.SHA512),
}


class _Header(msgspec.Struct):
    alg: str
    kid: str = ""


class _Reference(msgspec.Struct):
    name: str = ""


class _PrivateClaims(msgspec.Struct, rename="lower"):
    validatingwebhookconfiguration: _Reference | None = None
    mutatingwebhookconfiguration: _Reference | None = None
    attestations: dict[str, list[str]] = {}


class _Claims(msgspec.Struct):
    """Those that `Claims` in pkg/serviceaccount/claims.go writes, as far as they are read."""

    iss: str
    aud: str | list[str]
    exp: float
    nbf: float = 0.0
    private: _PrivateClaims = msgspec.field(name="kubernetes.io", default_factory=_PrivateClaims)


class _JsonWebKey(msgspec.Struct):
    kty: str
    kid: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class _KeySet(msgspec.Struct):
    keys: list[_JsonWebKey]


class _Discovery(msgspec.Struct):
    issuer: str


class _SigningKey(NamedTuple):
    """The algorithm of a key's signatures, and what checks one: it raises `InvalidSignature`."""

    algorithm: str
    verify: Callable[[bytes, bytes], None]


class SenderVerifier:
    """Verifies the tokens of API servers, by keys that `follow` reads.

    Args:
        url: ``https://HOST:PORT`` by which the API server calls the server. A token's audience is this, for all
            endpoints, or the URL of one endpoint.
        configurations: kinds and names of the server's webhook configurations; a token is bound to one of them.
        wall: the clock, in Unix seconds.

    Attributes:
        results: the tokens so far by result; a token counts once for each connection on which it comes.
    """

    def __init__(
        self, url: str, configurations: Collection[tuple[str, str]], wall: Callable[[], float] = time.time
    ) -> None:
        self._url: Final = url.rstrip("/")
        self._configurations: Final = frozenset((kind.lower(), name) for kind, name in configurations)
        self._wall: Final = wall
        self._issuer = ""
        self._keys: Mapping[str, _SigningKey] = {}
        self._read_at = float("-inf")
        self._wanted: Final = asyncio.Event()
        self.results: Final[Counter[Result]] = Counter()

    def verify(self, authorization: str, path: str, group: str) -> float | None:
        """Until when a token proves that an API server sends reviews to an endpoint.

        Args:
            authorization: the value of the header.
            path: of the endpoint.
            group: the API group of the endpoint's resource.

        Returns:
            A time on the clock of `time.monotonic`; 0.0: it proves nothing; None: its key is not known yet.
        """
        expiry = 0.0
        try:
            claims, check = _parse(authorization)
        except (*UNDECODABLE, ValueError):
            result: Result = "malformed"
        else:
            result, expiry = self._examine(claims, path, group), claims.exp
            if result == "verified":
                result = self._check_signature(claims, check)
        self.results[result] += 1
        if result == "no-key":
            return None
        return time.monotonic() + expiry - self._wall() if result == "verified" else 0.0

    def _examine(self, claims: _Claims, path: str, group: str) -> Result:
        """What the claims alone show: the signature is checked last, which costs most."""
        private = claims.private
        bound = {
            (kind, reference.name)
            for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
            if (reference := getattr(private, kind))
        }
        if not bound & self._configurations:
            return "not-bound"
        if not {"*", group}.intersection(private.attestations.get(ATTESTATION, ())):
            return "not-attested"
        audiences = {claims.aud} if isinstance(claims.aud, str) else set(claims.aud)
        if not audiences & {self._url, f"{self._url}/", self._url + path}:
            return "other-audience"
        now = self._wall()
        return "verified" if claims.nbf - _LEEWAY_SECONDS <= now < claims.exp else "expired"

    def _check_signature(self, claims: _Claims, token: _Signed) -> Result:
        key = self._keys.get(token.header.kid)
        if key is None or time.monotonic() >= self._read_at + KEPT_SECONDS:
            self._wanted.set()
        if key is None:
            return "no-key"
        if token.header.alg != key.algorithm or claims.iss != self._issuer:
            return "invalid-signature"
        try:
            key.verify(token.signature, token.content)
        except InvalidSignature:
            return "invalid-signature"
        return "verified"

    async def follow(self, transport: Transport, on_failure: Callable[[str], None]) -> None:
        """Read the keys when a token needs them, until cancelled.

        Args:
            transport: the connection to the API server.
            on_failure: gets each new reason why they cannot be read, as a clause; the former keys are kept.
        """
        told = ""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            failure = await self._read(transport)
            if failure and failure != told:
                on_failure(failure)
            told = failure
            await asyncio.sleep(READ_SECONDS)

    async def _read(self, transport: Transport) -> str:
        """Read issuer and keys; why that failed, as a clause, or nothing."""
        found: list[bytes] = []
        for path in (DISCOVERY_PATH, KEYS_PATH):
            answer = await await_answer(transport.get(path, most=_MAX_BYTES), _DEADLINE_SECONDS)
            if isinstance(answer, Unavailable):
                return answer.why
            if answer[0] != 200:
                return f"the API server answered {answer[0]} to get {path}"
            found.append(answer[1])
        discovery, keys = decode(found[0], _Discovery, "issuer"), decode(found[1], _KeySet, "keys")
        if isinstance(discovery, Unavailable):
            return discovery.why
        if isinstance(keys, Unavailable):
            return keys.why
        self._issuer = discovery.issuer
        self._keys = {each.kid: key for each in keys.keys[:_MAX_KEYS] if (key := _signing_key(each))}
        self._read_at = time.monotonic()
        return ""


class _Signed(NamedTuple):
    """A token's header, and its signature over its content."""

    header: _Header
    content: bytes
    signature: bytes


def _parse(authorization: str) -> tuple[_Claims, _Signed]:
    """A token in JWS compact serialization (RFC 7515); an error of `UNDECODABLE`, or a `ValueError`, if it is none."""
    scheme, _, token = authorization.partition(" ")
    content, _, signature = token.strip().rpartition(".")
    header, payload = content.split(".")
    if scheme.lower() != "bearer":
        raise ValueError(scheme)
    claims = msgspec.json.decode(_bytes(payload), type=_Claims)
    signed = _Signed(msgspec.json.decode(_bytes(header), type=_Header), content.encode(), _bytes(signature))
    return claims, signed


def _bytes(text: str) -> bytes:
    """What base64url without padding encodes."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _signing_key(key: _JsonWebKey) -> _SigningKey | None:
    """A key of the set (RFC 7517); None where it is of another kind, or malformed."""

    def number(text: str) -> int:
        return int.from_bytes(_bytes(text))

    try:
        if key.kty == "RSA":
            of_rsa = rsa.RSAPublicNumbers(number(key.e), number(key.n)).public_key()
            scheme = padding.PKCS1v15(), hashes.SHA256()
            return _SigningKey("RS256", lambda signature, content: of_rsa.verify(signature, content, *scheme))
        algorithm, curve, digest = _CURVES[key.crv]
        of_curve = ec.EllipticCurvePublicNumbers(number(key.x), number(key.y), curve()).public_key()
    except (ValueError, KeyError):
        return None

    def verify(signature: bytes, content: bytes) -> None:
        half = (of_curve.key_size + 7) // 8
        if len(signature) != 2 * half:
            raise InvalidSignature
        pair = int.from_bytes(signature[:half]), int.from_bytes(signature[half:])
        of_curve.verify(encode_dss_signature(*pair), content, ec.ECDSA(digest()))

    return _SigningKey(algorithm, verify)
