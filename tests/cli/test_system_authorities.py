from __future__ import annotations

import os
import subprocess
import sys

import pytest

from webhook.cli.serve import without_system_authorities

_PROGRAM = """
import ssl
from webhook.cli.serve import without_system_authorities
with without_system_authorities():
    import webhook.server.runtime.serve
from aiohttp import connector
verified, unverified = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
print([each.cert_store_stats()["x509"] for each in (verified, unverified)], verified.verify_mode == ssl.CERT_REQUIRED)
"""


def test_a_server_has_none_of_them_and_verifies_by_default() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout == "[0, 0] True\n"


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/own.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    with pytest.raises(RuntimeError), without_system_authorities():
        assert os.environ["SSL_CERT_FILE"] == os.devnull
        raise RuntimeError

    assert os.environ["SSL_CERT_FILE"] == "/own.pem"
    assert "SSL_CERT_DIR" not in os.environ
