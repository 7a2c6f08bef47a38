"""Whether the API server could call the server: its own listener is dialed as each webhook configuration says."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from certs.handshake import verify_server_certificate
from webhook.server.listener import split_address

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is listened on


class ProbeResult(NamedTuple):
    """By configuration, whether a client that trusts each of its caBundles accepts the server; why not, as clauses."""

    matches: Mapping[str, bool]
    why: tuple[str, ...]


async def probe(address: str, host: str, bundles: Mapping[str, Mapping[str, bytes] | None]) -> ProbeResult:
    """Dial the server's own listener, ``HOST:PORT``, once for every different caBundle.

    ``host`` is the name by which the API server calls it; the caBundles (PEM) are by entry by configuration, None for a
    configuration that does not exist.
    """
    matches, why = dict[str, bool](), list[str]()
    evaluated: dict[bytes, str] = {}
    for name, entries in bundles.items():
        problems: dict[str, None] = {} if entries is not None else {"it does not exist": None}
        for pem in (entries or {}).values():
            if pem not in evaluated:
                evaluated[pem] = await _rejection(address, host, pem)
            if evaluated[pem]:
                problems[evaluated[pem]] = None
        matches[name] = not problems
        why += [f"{name}: {each}" for each in problems]
    return ProbeResult(matches, tuple(why))


async def _rejection(address: str, host: str, pem: bytes) -> str:
    """Why a client with this caBundle could not call the server; empty if it could."""
    if not pem:
        return "an entry has no caBundle"
    where, port = split_address(address)
    try:
        await verify_server_certificate(_ANY.get(where, where), port, host, pem)
    except ssl.SSLCertVerificationError as error:
        return f"its caBundle does not verify the serving certificate ({error.verify_message})"
    except (OSError, ValueError, TimeoutError) as error:
        return f"the server's own listener cannot be called with its caBundle ({type(error).__name__})"
    return ""
