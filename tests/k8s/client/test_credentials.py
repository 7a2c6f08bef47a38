"""A pod's service account: its token and its CA are replaced while the pod runs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.errors import InputError
from webhook.k8s.client import credentials
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.client.credentials import CredentialsError, ServiceAccount
from webhook.k8s.client.transport import KubernetesTransport, connect


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0\n")
    return tmp_path


@asynccontextmanager
async def serving(account: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApiServer]:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(account / "ca.crt")
    server = FakeApiServer()
    async with running(server, context):
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        yield server


async def status(transport: KubernetesTransport) -> int:
    return (await transport.get("/version"))[0]


async def test_a_new_token_is_read_when_the_old_one_is_denied(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(account, monkeypatch) as server:
        transport = await connect()
        server.token = "t0"
        assert await status(transport) == 200
        server.token = "t1"
        assert await status(transport) == 401
        (account / "token").write_text("t1")
        assert await status(transport) == 200
        (account / "token").unlink()
        server.token = "t2"
        assert await status(transport) == 401
        await transport.close()


async def test_token_and_authority_are_read_every_minute(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ServiceAccount()
    before = mine.tls
    trustme.CA().cert_pem.write_to_path(account / "ca.crt")
    (account / "token").write_text("t1")
    assert (await mine.authorization(), mine.tls) == ("Bearer t0", before)

    monkeypatch.setattr(credentials, "_REREAD_SECONDS", 0.0)
    assert await mine.authorization() == "Bearer t1"
    assert mine.tls is not before
    before = mine.tls
    await mine.authorization()
    assert mine.tls is before, "the same CA needs no other context"
    await mine.close()


async def test_a_new_authority_counts_for_new_connections(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_REREAD_SECONDS", 0.0)
    async with serving(account, monkeypatch):
        right = (account / "ca.crt").read_bytes()
        trustme.CA().cert_pem.write_to_path(account / "ca.crt")
        transport = await connect()
        with pytest.raises(ApiConnectionError):
            await transport.get("/version")
        (account / "ca.crt").write_bytes(right)
        assert await status(transport) == 200
        await transport.close()


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
async def test_a_token_that_is_none(account: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(credentials, "_REREAD_SECONDS", 0.0)
    mine = ServiceAccount()
    (account / "token").write_bytes(content)
    with pytest.raises(CredentialsError):
        await mine.authorization()
    assert not await mine.renew("Bearer t0")
    await mine.close()


@pytest.mark.parametrize("host", ["10.96.0.1", "fd00::1"])
async def test_hosts(account: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)

    mine = ServiceAccount()
    assert mine.host == f"https://[{host}]:443".replace("[10.96.0.1]", "10.96.0.1")
    await mine.close()


async def test_no_port(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_PORT is empty"):
        await connect()
