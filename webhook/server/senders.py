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
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client.api import UNDECODABLE, Transport, await_answer, decode

if TYPE_CHECKING:
    # With cryptography it takes 11 MB, and most API servers send no token.
    import jwt

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"
ATTESTATION: Final = "admissionReviewAPIGroups"
# One of an API server has about 1,000.
MAX_TOKEN_BYTES: Final = 8 * 1024
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
# Those of service account tokens (pkg/serviceaccount/jwt.go and externaljwt of Kubernetes), all of public keys.
_ALGORITHMS: Final = frozenset({"RS256", "ES256", "ES384", "ES512"})


class _Header(msgspec.Struct):
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


class VerifiedToken(NamedTuple):
    """What was found out about a token.

    Attributes:
        authorization: the header that it came in.
        path: of the endpoint that it was sent to.
        until: until when it proves that an API server sent it, on the clock of `time.monotonic`.
    """

    authorization: str
    path: str
    until: float


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _Discovery(msgspec.Struct):
    issuer: str


class SenderVerifier:
    """Verifies the tokens of API servers, by keys that `follow` reads.

    Args:
        url: ``https://HOST:PORT`` by which the API server calls the server. A token's audience is this, for all
            endpoints, or the URL of one endpoint.
        configurations: kinds and names of the server's webhook configurations; a token is bound to one of them.
        wall: the clock, in Unix seconds.

    Attributes:
        results: how often tokens were verified so far, by result.
    """

    def __init__(
        self, url: str, configurations: Collection[tuple[str, str]], wall: Callable[[], float] = time.time
    ) -> None:
        self._url: Final = url.rstrip("/")
        self._configurations: Final = frozenset((kind.lower(), name) for kind, name in configurations)
        self._wall: Final = wall
        self._issuer = ""
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._read_at = float("-inf")
        self._needs_keys: Final = asyncio.Event()
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
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN_BYTES else ""
        try:
            # Only its signature, which is checked last, shows that any of it is true.
            header, payload, _ = token.split(".")
            key_id = msgspec.json.decode(urlsafe_b64decode(header + "=="), type=_Header).kid
            claims = msgspec.json.decode(urlsafe_b64decode(payload + "=="), type=_Claims)
        except (*UNDECODABLE, ValueError):
            result: Result = "malformed"
        else:
            result, expiry = self._examine(claims, path, group), claims.exp
            if result == "verified":
                result = self._check_signature(token, key_id, claims.iss)
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

    def _check_signature(self, token: str, key_id: str, issuer: str) -> Result:
        key = self._keys.get(key_id)
        if key is None or time.monotonic() >= self._read_at + KEPT_SECONDS:
            self._needs_keys.set()
        if key is None:
            return "no-key"
        import jwt  # noqa: PLC0415 - as it is for the keys, of which this is one

        try:
            jwt.PyJWS().decode(token, key, [key.algorithm_name])
        except (RecursionError, jwt.InvalidTokenError):
            return "invalid-signature"
        return "verified" if issuer == self._issuer else "invalid-signature"

    async def follow(self, transport: Transport, on_failure: Callable[[str], None]) -> None:
        """Read the keys when a token needs them, until cancelled.

        Args:
            transport: the connection to the API server.
            on_failure: gets each new reason why they cannot be read, as a clause; the former keys are kept.
        """
        last = ""
        while True:
            await self._needs_keys.wait()
            self._needs_keys.clear()
            failure = await self._read(transport)
            if failure and failure != last:
                on_failure(failure)
            last = failure
            await asyncio.sleep(READ_SECONDS)

    async def _read(self, transport: Transport) -> str:
        """Read issuer and keys; why that failed, as a clause, or nothing."""
        bodies: list[bytes] = []
        for path in (DISCOVERY_PATH, KEYS_PATH):
            answer = await await_answer(transport.get(path, most=_MAX_BYTES), _DEADLINE_SECONDS)
            if isinstance(answer, Unavailable):
                return answer.why
            if answer[0] != 200:
                return f"the API server answered {answer[0]} to get {path}"
            bodies.append(answer[1])
        discovery, keys = decode(bodies[0], _Discovery, "issuer"), decode(bodies[1], _KeySet, "keys")
        if isinstance(discovery, Unavailable):
            return discovery.why
        if isinstance(keys, Unavailable):
            return keys.why
        self._issuer = discovery.issuer
        # In a thread, since the first ones take an import.
        usable = await asyncio.to_thread(lambda: [*filter(None, map(_signing_key, keys.keys[:_MAX_KEYS]))])
        self._keys = {str(key.key_id or ""): key for key in usable}
        self._read_at = time.monotonic()
        return ""


def _signing_key(key: dict[str, Any]) -> jwt.PyJWK | None:
    """A key of the set (RFC 7517); None where it is of another kind, or malformed."""
    import jwt  # noqa: PLC0415 - only where tokens come

    try:
        jwk = jwt.PyJWK(key)
    except (jwt.PyJWTError, TypeError, ValueError):
        return None
    return jwk if jwk.algorithm_name in _ALGORITHMS else None
