"""Keeps the system's CAs out of a server, which trusts none of them by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# What OpenSSL reads the system's CAs from, in place of its own paths.
_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@contextmanager
def without_system_authorities() -> Iterator[None]:
    """Import aiohttp without the system's CAs.

    It reads them twice while it is imported, for connections that name no CAs: an eighth of a server's start, and 2 MB
    as long as it runs. The server names the CAs of each connection, and one that does not would accept no server.
    """
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, os.devnull))
    try:
        import aiohttp  # noqa: F401 - the client of API servers and registries

        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
