"""The server dials itself as the API server does: do the caBundles of the configurations verify its certificate?"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from certs.handshake import verify_server_certificate
from webhook.server.edge import split_address

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is listened on


class Found(NamedTuple):
    """The result of a probe.

    Attributes:
        matches: whether a client that trusts a configuration's caBundles, each of them, accepts the server; by
            configuration.
        why: what is wrong, as clauses.
    """

    matches: Mapping[str, bool]
    why: tuple[str, ...]


async def probe(address: str, host: str, bundles: Mapping[str, Mapping[str, bytes] | None]) -> Found:
    """Dial the server's own listener once for every different caBundle.

    Args:
        address: the address of the listener, ``HOST:PORT``.
        host: the name by which the API server calls it.
        bundles: caBundle (PEM) by entry by configuration; None: the configuration does not exist.
    """
    matches: dict[str, bool] = {}
    why: list[str] = []
    evaluated: dict[bytes, str] = {}
    for name, entries in bundles.items():
        said: dict[str, None] = {} if entries is not None else {"it doesn't exist": None}
        for pem in (entries or {}).values():
            if pem not in evaluated:
                evaluated[pem] = await _rejection(address, host, pem)
            if evaluated[pem]:
                said[evaluated[pem]] = None
        matches[name] = not said
        why += [f"{name}: {each}" for each in said]
    return Found(matches, tuple(why))


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
