"""A pod's service account: what it is used for, and that its token and CA are replaced while the pod runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme

from tests.cluster.fake_apiserver import FakeApiServer, running, tls_of
from tests.golden_files import Golden
from tests.k8s.client.odd_files import ODD_FILES
from tests.k8s.client.test_transport import code_of, failure
from webhook.errors import InputError
from webhook.k8s.client import credentials
from webhook.k8s.client.credentials import CredentialsError, ServiceAccount
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.client.transport import connect


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0\n")
    return tmp_path


@pytest.fixture
async def server(account: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApiServer]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(account / "ca.crt")
    async with running(FakeApiServer(), tls_of(authority)) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        yield server


async def test_over_tls_with_our_service_account(
    account: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    right = (account / "ca.crt").read_bytes()
    for host, token, authority in (
        *(("localhost", "t0", right), ("localhost", "t0", trustme.CA().cert_pem.bytes())),
        *(("127.0.0.1", "t0", right), ("localhost", "t0\nt1", right)),
    ):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        (account / "ca.crt").write_bytes(authority)
        (account / "token").write_text(token)
        transport = await connect()
        assert f"of this pod, https://{host}:" in transport.cluster
        if (host, token, authority) == ("localhost", "t0", right):
            server.token = "t0"
            assert await code_of(transport, "/version") == 200
        else:
            golden(await failure(transport.get("/version")))
        await transport.close()


@pytest.mark.parametrize(
    "files",
    [{}, {"token": " \n", "ca.crt": "garbage"}, {"token": "t0"}, {"token": "t0", "ca.crt": "garbage"}],
    ids=["nothing", "empty token", "no CA", "no PEM"],
)
async def test_that_can_not_be_used(account: Path, files: dict[str, str], golden: Golden) -> None:
    for name in ("token", "ca.crt"):
        (account / name).unlink()
        if name in files:
            (account / name).write_text(files[name])
    with pytest.raises(InputError) as caught:
        await connect()
    golden(caught.value.what.partition(" (")[0].replace(str(account), "ACCOUNT"))
    assert "automountServiceAccountToken" in caught.value.fix


async def test_a_new_token_is_read_when_the_old_one_is_denied(account: Path, server: FakeApiServer) -> None:
    transport = await connect()
    codes = []
    for accepted, written in (("t0", "t0"), ("t1", "t0"), ("t1", "t1"), ("t2", None)):
        server.token = accepted
        (account / "token").write_text(written) if written else (account / "token").unlink()
        codes.append(await code_of(transport, "/version"))
    assert codes == [200, 401, 200, 401]
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


async def test_a_new_authority_counts_for_new_connections(
    account: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_REREAD_SECONDS", 0.0)
    right = (account / "ca.crt").read_bytes()
    trustme.CA().cert_pem.write_to_path(account / "ca.crt")
    transport = await connect()
    assert await failure(transport.get("/version"))
    (account / "ca.crt").write_bytes(right)
    assert await code_of(transport, "/version") == 200
    await transport.close()


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
async def test_a_token_that_is_none(account: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(credentials, "_REREAD_SECONDS", 0.0)
    mine = ServiceAccount()
    (account / "token").write_bytes(content)
    with pytest.raises(CredentialsError):
        await mine.authorization()
    assert not await mine.renew(("Bearer t0", mine.tls))
    await mine.close()


@pytest.mark.parametrize(
    ("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_hosts(account: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    mine = ServiceAccount()
    assert mine.host == url
    await mine.close()


async def test_no_port(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_PORT is empty"):
        await connect()


async def test_impersonation(account: Path) -> None:
    transport = await connect(Kubeconfig(impersonation=Impersonation("bob")))
    assert transport._credentials.impersonation == [("Impersonate-User", "bob")]
    await transport.close()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", ODD_FILES)
@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_files_that_have_no_end_are_not_read(account: Path, name: str, make: Callable[[Path], None]) -> None:
    (account / name).unlink()
    make(account / name)
    with pytest.raises(InputError) as caught:
        ServiceAccount()
    assert str(account / name) in caught.value.what
