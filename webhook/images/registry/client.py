"""Manifests from a registry over HTTP: the part of the distribution specification that reads manifests.

A registry is on the admin's list, and still not trusted: its answers are bounded in time and bytes, are compared with
their digest, and cannot direct credentials to another host. The server reads no other URL than that of a manifest and
that of the registry's token server, which ``WWW-Authenticate`` headers name (RFC 9110, section 11.6.1).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from cachetools import TLRUCache

from certs.handshake import verifying
from webhook import __version__
from webhook.images import manifests
from webhook.images.manifests import ImageReference
from webhook.images.registry.addresses import AddressDenied, CheckedResolver, is_literal_denied
from webhook.images.registry.credentials import RegistryCredentials
from webhook.settings.model import RegistrySettings

Cause = Literal["absent", "denied", "limited", "unavailable", "invalid"]

# How long until the same is requested again.
RETRY_SECONDS: Final[dict[Cause, float]] = {
    "unavailable": 30.0,
    "absent": 300.0,
    "denied": 300.0,
    "limited": 900.0,
    "invalid": 3600.0,
}


class RegistryError(Exception):
    """There is no manifest.

    Args:
        cause: ``absent`` (404), ``denied`` (401, 403, or a rule of this client), ``limited`` (429), ``unavailable`` (no
            answer in time, or 5xx) or ``invalid`` (an answer that is none).
        why: the cause as a clause; it quotes nothing that the registry sent.
    """

    def __init__(self, cause: Cause, why: str) -> None:
        super().__init__(why)
        self.cause: Final[Cause] = cause
        self.why: Final = why


_MAX_CHARACTERS: Final = 4096
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# All quantifiers are possessive: there is no backtracking, whatever the header holds.
_PARAMETER: Final = re.compile(rf'[ \t,]*+({_WORD})[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|({_WORD}))[ \t]*+')
_SCHEME: Final = re.compile(rf"[ \t,]*+({_WORD})(?:[ \t]++|$|(?=,))")


class Challenge(msgspec.Struct, frozen=True):
    """One way to authenticate: its scheme, and its parameters by their names, all of these in lower case."""

    scheme: str
    parameters: dict[str, str]


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """The challenges in the values of all ``WWW-Authenticate`` headers; what is not valid ends a header."""
    return [challenge for header in headers for challenge in _parse(header[:_MAX_CHARACTERS])]


def _parse(header: str) -> Iterator[Challenge]:
    position = 0
    while scheme := _SCHEME.match(header, position):
        parameters: dict[str, str] = {}
        position = scheme.end()
        while parameter := _PARAMETER.match(header, position):
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if plain is None else plain)
            position = parameter.end()
        yield Challenge(scheme[1].lower(), parameters)


TOTAL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 3.0
MAX_TOKEN_ANSWER_BYTES: Final = 64 * 1024
MAX_REDIRECTS: Final = 3
_MAX_TOKEN: Final = 16 * 1024
_MAX_TOKENS: Final = 512
_TOKEN_SECONDS: Final = 60.0
_MAX_TOKEN_SECONDS: Final = 300.0
_CONNECTIONS: Final = 4
_ACCEPT: Final = ", ".join((*manifests.INDEX_TYPES, *manifests.MANIFEST_TYPES))
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_DIGEST_HEADER: Final = "Docker-Content-Digest"
_HUB_API: Final = "registry-1.docker.io"
_HUB_TOKENS: Final = "auth.docker.io"


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: float = _TOKEN_SECONDS


_decode_token: Final = msgspec.json.Decoder(_Token).decode


class RegistryClient:
    """Reads manifests of one registry; make it inside the running loop.

    Args:
        name: the registry, as references name it.
        settings: what the admin wrote about it.
        tls: the TLS context; None: the system's CAs.
        own: the cluster's own addresses.
        seconds: timeout of one request, redirects and authentication not included.
    """

    def __init__(
        self,
        name: str,
        settings: RegistrySettings,
        *,
        tls: ssl.SSLContext | None = None,
        own: Container[object] = (),
        seconds: float = TOTAL_SECONDS,
    ) -> None:
        host = _HUB_API if name == manifests.DOCKER_HUB else name
        self._base: Final = urlsplit(f"{'http' if settings.plain_http else 'https'}://{host}")
        self._settings: Final = settings
        self._own: Final = own
        hub = (_HUB_TOKENS,) if name == manifests.DOCKER_HUB else ()
        self._token_hosts: Final = {self._base.netloc, *hub, *settings.token_hosts}
        self._redirect_hosts: Final = {self._base.netloc, *settings.redirect_hosts}
        # With the seconds for which each is used.
        self._tokens: Final = TLRUCache[tuple[str, RegistryCredentials | None], tuple[str, float]](
            _MAX_TOKENS, lambda _, token, now: now + token[1]
        )
        self._session: Final = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_CONNECTIONS,
                resolver=CheckedResolver(settings.addresses, own),
                use_dns_cache=False,
                ssl=tls or verifying(),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A body that is small on the wire must not become large here.
            auto_decompress=False,
            skip_auto_headers=["Accept-Encoding"],
            headers={"User-Agent": f"kubevirt-webhook/{__version__}", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            # A proxy would resolve names itself, unchecked.
            trust_env=False,
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    async def manifest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> bytes:
        """The bytes of a manifest or an index, with the digest of a reference that has one; else a `RegistryError`."""
        _, body = await self._ask("GET", reference, credentials)
        if reference.digest and manifests.digest_of(body) != reference.digest:
            raise RegistryError("invalid", "the manifest does not have the digest that was asked for")
        return body

    async def digest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> str:
        """The digest to which a tag points, or a `RegistryError`; empty where the registry does not say it.

        Registries that limit the number of pulls, Docker Hub among them, do not count this request.
        """
        headers, _ = await self._ask("HEAD", reference, credentials)
        digest = headers.get(_DIGEST_HEADER, "")
        return digest if manifests.is_digest(digest) else ""

    async def _ask(
        self, method: str, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> tuple[Any, bytes]:
        """Headers and body of the answer about a manifest, authenticated if the registry asks for it."""
        path = f"/v2/{reference.repository}/manifests/{reference.version}"
        key = (reference.repository, credentials)
        token, _ = self._tokens.get(key) or ("", 0.0)
        status, headers, body = await self._follow(method, path, token)
        if status == 401:
            self._tokens.pop(key, None)
            challenges = parse_challenges(headers.getall("WWW-Authenticate", ()))
            authorization = await self._authorize(challenges, reference.repository, credentials)
            status, headers, body = await self._follow(method, path, authorization)
        if status != 200:
            raise _error_of(status)
        return headers, body

    async def _follow(self, method: str, path: str, authorization: str) -> tuple[int, Any, bytes]:
        """The answer to a request, after redirects; none of them carries credentials to another host."""
        url = urlsplit(f"{self._base.geturl()}{path}")
        for _ in range(MAX_REDIRECTS + 1):
            mine = url.netloc == self._base.netloc
            headers = {"Accept": _ACCEPT, **({"Authorization": authorization} if authorization and mine else {})}
            status, answered, body = await self._send(method, url, headers, manifests.MAX_BYTES)
            if status not in _REDIRECTS:
                return status, answered, body
            url = self._redirect_target(url, answered.get("Location", ""))
        raise RegistryError("invalid", f"the registry redirects more than {MAX_REDIRECTS} times")

    def _redirect_target(self, url: SplitResult, location: str) -> SplitResult:
        try:
            target = urlsplit(urljoin(url.geturl(), location))
            hosts = self._redirect_hosts if target.hostname and not target.username else set()
        except ValueError:
            raise RegistryError("invalid", "the registry redirects to an invalid URL") from None
        if target.scheme != self._base.scheme or target.netloc not in hosts:
            raise RegistryError("denied", "the registry redirects to a host that its redirectHosts do not list")
        return target

    async def _authorize(
        self, challenges: list[Challenge], repository: str, credentials: RegistryCredentials | None
    ) -> str:
        """The value of the ``Authorization`` header after a challenge."""
        for challenge in challenges:
            if challenge.scheme == "bearer":
                return await self._token(challenge, repository, credentials)
            if challenge.scheme == "basic" and credentials:
                return credentials.basic()
        raise RegistryError("denied", "the registry requires credentials (401)")

    async def _token(self, challenge: Challenge, repository: str, credentials: RegistryCredentials | None) -> str:
        """A token for pulling from one repository, whatever scope the registry asks for."""
        try:
            realm = urlsplit(challenge.parameters.get("realm", ""))
            is_listed = realm.scheme == self._base.scheme and realm.netloc in self._token_hosts
        except ValueError:
            is_listed = False
        if not is_listed:
            raise RegistryError("denied", "the registry names a token server that its tokenHosts do not list")
        query = {"scope": f"repository:{repository}:pull"}
        if service := challenge.parameters.get("service"):
            query["service"] = service[:256]
        # A query of the realm's own could name another scope.
        url = realm._replace(query=urlencode(query), fragment="")
        headers = {"Authorization": credentials.basic()} if credentials else {}
        status, _, body = await self._send("GET", url, headers, MAX_TOKEN_ANSWER_BYTES)
        if status != 200:
            raise _error_of(status)
        try:
            answer = _decode_token(body)
            token = answer.token or answer.access_token
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            token = ""
        if not 0 < len(token) <= _MAX_TOKEN or not token.isascii() or not token.isprintable():
            raise RegistryError("invalid", "the token server's answer is not a token")
        authorization = f"Bearer {token}"
        seconds = min(max(answer.expires_in, _TOKEN_SECONDS), _MAX_TOKEN_SECONDS)
        self._tokens[repository, credentials] = authorization, seconds * 0.9
        return authorization

    async def _send(
        self, method: str, url: SplitResult, headers: Mapping[str, str], most: int
    ) -> tuple[int, Any, bytes]:
        """Status, headers and body of the answer to one request."""
        if is_literal_denied(url.hostname or "", self._settings.addresses, self._own):
            raise RegistryError("denied", "the address is not public and not in the registry's addresses")
        try:
            async with self._session.request(method, url.geturl(), headers=headers, allow_redirects=False) as response:
                # An error's body says nothing that would be used.
                body = await _body(response, most) if response.status == 200 else b""
                return response.status, response.headers, body
        except TimeoutError:
            raise RegistryError("unavailable", "the registry did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(getattr(error, "os_error", None), AddressDenied):
                raise RegistryError("denied", "the registry's name has no address that may be contacted") from None
            raise RegistryError("unavailable", f"no connection to the registry ({type(error).__name__})") from None


async def _body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """A whole body; one that is too large is left unread, which ends its connection."""
    if (response.content_length or 0) > most:
        raise RegistryError("invalid", f"the answer is larger than {most // 1024} KiB")
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > most:
            response.close()
            raise RegistryError("invalid", f"the answer is larger than {most // 1024} KiB")
        pieces.append(piece)
    return b"".join(pieces)


def _error_of(status: int) -> RegistryError:
    match status:
        case 404:
            return RegistryError("absent", "the registry does not have the image (404)")
        case 401 | 403:
            return RegistryError("denied", f"the registry does not accept the credentials, or requires some ({status})")
        case 429:
            return RegistryError("limited", "the registry limits the number of requests (429)")
    return RegistryError("unavailable" if status >= 500 else "invalid", f"the registry answered {status}")
