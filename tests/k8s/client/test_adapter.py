"""A pod's service account: what it is used for, and that its token and CA are replaced while the pod runs."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pytest_aiohttp import AiohttpRawServer

from certs.files import Followed
from tests.certs.test_handshake import signed
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer, tls_of
from tests.golden_files import Golden
from tests.k8s.client.odd_files import ODD_FILES
from tests.k8s.client.test_kubeconfig import config, write
from tests.k8s.client.test_transport import code_of, failure
from webhook.errors import InputError
from webhook.k8s.client import adapter
from webhook.k8s.client.adapter import ServiceAccount
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.client.transport import connect


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(adapter, "SERVICE_ACCOUNT", tmp_path)
    # A kubeconfig would come first.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0\n")
    return tmp_path


@pytest.fixture
async def server(apiservers: ApiServers, account: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(account / "ca.crt")
    server = await apiservers.start(tls=tls_of(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    return server


@pytest.mark.control("impostor-of-the-api-server")
async def test_over_tls_with_our_service_account(
    account: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    right = (account / "ca.crt").read_bytes()
    for host, token, authority in (
        *(("localhost", "t0", right), ("localhost", "t0", trustme.CA().cert_pem.bytes())),
        ("127.0.0.1", "t0", right),
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


async def test_the_warnings_of_an_answer_are_given_to_who_asks(
    tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async def warn(_: web.BaseRequest) -> web.Response:
        sent = [
            ("Warning", '299 - "use \\"off\\" \\\\o/"'),
            ("Warning", "299 - without quotes"),
            # A proxy may join lines of one name.
            ("Warning", '299 - "é", 299 - "b, 299 - \\"c\\"" "Sat, 25 Aug 2012 23:34:45 GMT",299 kube "d"'),
        ]
        return web.json_response({}, headers=sent)

    server = await aiohttp_raw_server(warn)
    transport = await connect(write(tmp_path, config(cluster={"server": f"http://127.0.0.1:{server.port}"})))
    warnings: list[str] = []
    assert await transport.request("POST", "/api/v1/namespaces", body={}, warnings=warnings) == (200, b"{}")
    await transport.close()
    assert warnings == ['use "off" \\o/', "é", 'b, 299 - "c"', "d"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_by_nobody(
    status: int, tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    """Neither a write nor the impersonated user reaches another host, and none is taken for done."""
    reached = []

    async def elsewhere(request: web.BaseRequest) -> web.Response:
        reached.append(request.path)
        return web.json_response({})

    async def redirect(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers={"Location": f"http://127.0.0.1:{other.port}/stolen"})

    other, server = await aiohttp_raw_server(elsewhere), await aiohttp_raw_server(redirect)
    transport = await connect(write(tmp_path, config(cluster={"server": f"http://127.0.0.1:{server.port}"})))
    for method in ("GET", "POST"):
        with pytest.raises(ApiConnectionError, match="a redirect, which is not followed"):
            await transport.request(method, "/api/v1/namespaces", body={})
    await transport.close()
    assert reached == []


@pytest.mark.parametrize(
    "files",
    [
        *({}, {"token": " \n", "ca.crt": "garbage"}, {"token": "t0"}, {"token": "t0", "ca.crt": "garbage"}),
        *({"token": "t0", "ca.crt": ""}, {"token": "t0\nt1", "ca.crt": ""}),
    ],
    ids=["nothing", "empty token", "no CA", "no PEM", "empty CA", "two tokens"],
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


@pytest.mark.control("expired-account-token")
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
    assert (await token_of(mine), mine.tls) == ("Bearer t0", before)
    monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
    assert await token_of(mine) == "Bearer t1"
    assert mine.tls is not before
    before = mine.tls
    await token_of(mine)
    assert mine.tls is before, "the same CA needs no other context"
    await mine.close()


async def test_files_that_are_no_use_are_not_read_for_each_request(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ServiceAccount()
    (account / "token").unlink()
    looks = list[str]()
    look = Followed.look

    def counted(followed: Followed) -> tuple[bytes, ...] | None:
        looks.append(followed.paths[0].name)
        return look(followed)

    monkeypatch.setattr(Followed, "look", counted)
    mine._looked_at -= 60
    assert [await token_of(mine) for _ in range(5)] == ["Bearer t0"] * 5
    assert looks == ["token", "ca.crt"]
    (account / "token").write_text("t1")
    mine._looked_at -= 1
    assert await token_of(mine) == "Bearer t1"
    await mine.close()


async def token_of(account: ServiceAccount) -> str | None:
    """As before each request."""
    account._look_if_due()
    token: str | None = await account.configuration.get_api_key_with_prefix("BearerToken")
    return token


async def test_a_new_authority_counts_for_new_connections(
    account: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
    right = (account / "ca.crt").read_bytes()
    trustme.CA().cert_pem.write_to_path(account / "ca.crt")
    transport = await connect()
    assert await failure(transport.get("/version"))
    (account / "ca.crt").write_bytes(right)
    assert await code_of(transport, "/version") == 200
    await transport.close()


async def test_authorities_that_change_again_and_again_leave_no_sessions(
    account: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its verified connections, and its authorities in memory."""
    monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
    made: list[aiohttp.ClientSession] = []
    session = aiohttp.ClientSession

    def make(*args: Any, **options: Any) -> aiohttp.ClientSession:
        made.append(session(*args, **options))
        return made[-1]

    monkeypatch.setattr(aiohttp, "ClientSession", make)
    right = (account / "ca.crt").read_bytes()
    transport = await connect()
    for _ in range(5):
        (account / "ca.crt").write_bytes(right + trustme.CA().cert_pem.bytes())
        assert await code_of(transport, "/version") == 200
    assert await code_of(transport, "/version") == 200
    mine = [each for each in made if each.headers.get("User-Agent") is None]
    assert len(mine) > 5
    assert sum(not each.closed for each in mine) == 2
    await transport.close()
    assert all(each.closed for each in mine)


def remove(path: Path) -> None:
    """As if it had never been there; some moments before it was what was not to be read."""


def hold(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def forbid(path: Path) -> None:
    """Nobody may list what is in a link that leads to itself."""
    path.symlink_to(path)


MOMENTS = {
    "missing": remove,
    "empty": hold(b""),
    "white space": hold(b" \n"),
    "no text": hold(b"\xff\xfe"),
    "two lines": hold(b"t0\nt1"),
    "cut off": hold(b"-----BEGIN CERTIFICATE-----\nMIIB"),
    "a loop of links": forbid,
    **{make.__name__: make for make in ODD_FILES},
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_moment_in_which_a_file_can_not_be_read_fails_no_request(
    account: Path,
    server: FakeApiServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    moment: str,
) -> None:
    """What is in memory is still valid; and the other of the two files is read all the same."""
    monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
    caplog.set_level("INFO", "webhook.k8s.client")
    transport = await connect()
    server.token = "t0"
    assert await code_of(transport, "/version") == 200
    content = (account / name).read_bytes()
    (account / name).unlink()
    MOMENTS[moment](account / name)
    assert [await code_of(transport, "/version") for _ in range(3)] == [200] * 3
    (warning,) = caplog.messages
    assert str(account / name) in warning
    if name == "ca.crt":
        (account / "token").write_text("t1")
        server.token = "t1"
        assert await code_of(transport, "/version") == 200, "the token does not wait for the CA"
        (account / "token").write_text("t0")
        server.token = "t0"
    (account / name).unlink(missing_ok=True)
    (account / name).write_bytes(content)
    assert await code_of(transport, "/version") == 200
    assert caplog.messages[1:] == ["the pod's service account can be read again"]
    await transport.close()


async def test_a_file_that_can_not_be_read_when_the_token_was_denied(
    account: Path, server: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    transport = await connect()
    server.token = "t1"
    (account / "token").write_text("")
    assert [await code_of(transport, "/version") for _ in range(3)] == [401] * 3
    (warning,) = caplog.messages
    assert str(account / "token") in warning
    (account / "token").write_text("t1")
    assert await code_of(transport, "/version") == 200
    await transport.close()


@pytest.mark.parametrize("by", ["service account", "file", "data"])
async def test_an_authority_without_key_identifiers_that_another_has_signed(
    apiservers: ApiServers, account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Go trusts what is among the authorities, and so kubectl does: the CA of EKS has no key identifier."""
    _, root = signed("root.test", None, is_ca=True)
    between_pem, between = signed("between.test", root, is_ca=True)
    leaf_pem, (_, key) = signed("localhost", between, is_ca=False)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "pair").write_bytes(key_pem + leaf_pem + between_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair")
    (account / "ca.crt").write_bytes(between_pem)
    authority = {
        "file": {"certificate-authority": str(account / "ca.crt")},
        "data": {"certificate-authority-data": base64.b64encode(between_pem).decode()},
    }
    server = await apiservers.start(tls=context)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    path = write(tmp_path, config(cluster={"server": server.url, **authority.get(by, {})}))
    transport = await connect(None if by == "service account" else path)
    assert await code_of(transport, "/version") == 200
    await transport.close()


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


async def test_impersonation(server: FakeApiServer) -> None:
    transport = await connect(Kubeconfig(impersonation=Impersonation("bob", groups=("ops", "dev"))))
    assert await code_of(transport, "/version") == 200
    headers = server.asked[0].headers
    assert (headers.getall("Impersonate-User"), headers.getall("Impersonate-Group")) == (["bob"], ["ops", "dev"])
    await transport.close()


@pytest.mark.control("endless-kubeconfig-files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", ODD_FILES)
@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_files_that_have_no_end_are_not_read(account: Path, name: str, make: Callable[[Path], None]) -> None:
    (account / name).unlink()
    make(account / name)
    with pytest.raises(InputError) as caught:
        ServiceAccount()
    assert str(account / name) in caught.value.what
