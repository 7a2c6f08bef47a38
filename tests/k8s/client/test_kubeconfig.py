"""Kubeconfig files, and the errors in them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trustme
import yaml
from aiohttp import web

from tests.cluster.fake_apiserver import ApiServers, Asked, FakeApiServer, tls_of
from tests.golden_files import Golden
from tests.k8s.client.odd_files import ODD_FILES
from tests.k8s.client.test_transport import failure
from tests.waiting import until
from webhook.admission.credentials import scrub_prose
from webhook.errors import InputError
from webhook.k8s.client import adapter, kubeconfig
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.client.transport import KubernetesTransport, connect

LOCAL = {"server": "https://localhost:1"}
NO_SERVERS = ["://", "https://", "ftp://localhost", "https://localhost:99999", "https://[", "https://localhost:0"]
NOT_PEM = base64.b64encode(b"not a certificate").decode()


def config(**changes: Any) -> dict[str, Any]:
    cluster, user = changes.pop("cluster", {}), changes.pop("user", {"token": "t0"})
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": LOCAL | cluster}],
        "users": [{"name": "u", "user": user}],
    } | changes


def write(tmp_path: Path, document: Any) -> str:
    file = tmp_path / "config"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(file)


async def refusal(path: str) -> InputError:
    with pytest.raises(InputError) as caught:
        await connect(path)
    assert "\n" not in str(caught.value)
    return caught.value


async def asked(
    server: FakeApiServer, tmp_path: Path, user: dict[str, Any], options: Impersonation | None = None
) -> Asked:
    """The request of a user, as it came in."""
    path = server.kubeconfig(tmp_path / "config", **user)
    transport = await connect(Kubeconfig(path, options) if options else path)
    await transport.get("/version")
    await transport.close()
    return server.asked[-1]


class TestKubeconfig:
    @pytest.mark.parametrize(
        ("document", "fix"),
        [
            *(("just text", "--kubeconfig"), ("", "use-context"), ("a: [", "repair"), ("a: \x01", "repair")),
            *((config(**{"current-context": ""}), "use-context"), ({}, "use-context")),
            *((config(**{"current-context": "z"}), "repair"), (config(contexts=None), "repair")),
            *((config(users=[]), "repair"), (config(clusters=[]), "repair"), (config(clusters=["x"]), "repair")),
            (config(users=[{"name": "u", "user": "x"}]), "repair"),
            (config(clusters=[{"name": "k", "cluster": {"insecure-skip-tls-verify": True}}]), "add it"),
            (config(cluster={"certificate-authority-data": NOT_PEM}), "repair"),
            (config(cluster={"certificate-authority-data": "abc"}), "repair"),
            (config(cluster={"certificate-authority": "nowhere.crt"}), "repair"),
            (config(user={"client-certificate-data": NOT_PEM, "client-key-data": NOT_PEM}), "repair"),
            (config(user={"tokenFile": "nowhere"}), "repair"),
            *((config(cluster={"insecure-skip-tls-verify": "false"}), "repair"), (config(user={"token": 5}), "quotes")),
            (config(cluster={"server": "localhost:6443"}), "https://"),
            *((config(cluster={"server": url}), "https://HOST:PORT") for url in NO_SERVERS),
        ],
        ids=[
            *("text", "empty", "not YAML", "control character", "empty context", "no context", "another context"),
            *("no contexts", "no users", "no clusters", "clusters of text", "users of text", "no server", "CA not PEM"),
            *(
                "CA not base64",
                "no CA file",
                "certificate not PEM",
                "no token file",
                "insecure by a text",
                *("token a number", "no scheme"),
            ),
            *NO_SERVERS,
        ],
    )
    async def test_mistakes_are_told_in_one_sentence(
        self, tmp_path: Path, document: Any, fix: str, golden: Golden
    ) -> None:
        file = write(tmp_path, document)
        error = await refusal(file)
        golden(error.what)
        assert fix in error.fix
        assert error.where == file

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 300 + "1" + "}" * 300])
    async def test_depth_is_found_before_it_is_parsed(
        self, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        """By a parser that takes the square of it."""
        monkeypatch.setattr("webhook.k8s.client.kubeconfig.load_plain", None)
        golden((await refusal(write(tmp_path, text))).what)

    @pytest.mark.parametrize("by", ["$KUBECONFIG", "~/.kube/config"])
    async def test_in_a_pod_it_comes_before_the_service_account(
        self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        """As for kubectl: who writes one down means another cluster or user, for example in a pipeline's pod."""
        for name, value in (("HOST", "127.0.0.1"), ("PORT", "1")):
            monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".kube").mkdir()
        if by == "$KUBECONFIG":
            monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path / "config"))
        else:
            server.kubeconfig(tmp_path / ".kube" / "config")
        transport = await connect()
        assert (await transport.get("/version"))[0] == 200
        await transport.close()

    @pytest.mark.parametrize("content", [None, "", "{}", "apiVersion: v1\nkind: Config\nclusters: null\n"])
    async def test_in_a_pod_one_without_a_cluster_is_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
    ) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBECONFIG", f":{tmp_path / 'config'}")
        if content is not None:
            write(tmp_path, content)
        with pytest.raises(InputError, match="the pod's service account cannot be used"):
            await connect()
        (tmp_path / "config").write_text("a: [")
        assert "not YAML" in str(await refusal("")), "what is broken is said, as by kubectl"

    async def test_that_is_not_there(self, tmp_path: Path, golden: Golden) -> None:
        golden((await refusal(str(tmp_path / "missing"))).what)
        assert "Is a directory" in str(await refusal(str(tmp_path)))

    async def test_by_environment(self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{server.kubeconfig(tmp_path / 'config')}")
        transport = await connect()
        assert (await transport.get("/version"))[0] == 200
        await transport.close()
        monkeypatch.delenv("KUBECONFIG")
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(InputError) as caught:
            await connect()
        assert caught.value.where == str(tmp_path / ".kube" / "config"), "where kubectl looks"

    @pytest.mark.parametrize("template", [":FILE", "FILE:", "::FILE::", ":MISSING:FILE"])
    async def test_empty_parts_of_the_environment_are_skipped(
        self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str
    ) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.chdir(tmp_path)
        file = server.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", template.replace("FILE", file).replace("MISSING", str(tmp_path / "missing")))
        transport = await connect()
        assert (await transport.get("/version"))[0] == 200
        await transport.close()
        monkeypatch.setenv("KUBECONFIG", "::")
        with pytest.raises(InputError) as caught:
            await connect()
        assert caught.value.where == "KUBECONFIG"

    @pytest.mark.parametrize(
        "document", [config(cluster={"certificate-authority": "a\0b"}), config(user={"tokenFile": "a\0b"})]
    )
    async def test_a_name_that_no_file_has(self, tmp_path: Path, document: Any) -> None:
        assert "a\\x00b cannot be read" in str(await refusal(write(tmp_path, document)))

    @pytest.mark.parametrize("path", ["~nobody-of-that-name/config", "a" * 5000])
    async def test_that_can_not_be_there(self, tmp_path: Path, path: str) -> None:
        assert "cannot be read" in (await refusal(path)).what
        assert "cannot be read" in (await refusal(f"{path}{os.pathsep}{tmp_path / 'missing'}")).what

    async def test_a_user_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a container that runs as any UID."""

        def nobody(_: int) -> NoReturn:
            raise KeyError

        for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("pwd.getpwuid", nobody)
        with pytest.raises(InputError) as caught:
            await connect()
        assert caught.value.where == "~/.kube/config"

    @pytest.mark.parametrize("scheme", ["https://", ""])
    async def test_credentials_in_the_url_of_a_server_are_refused_and_not_told(
        self, tmp_path: Path, scheme: str
    ) -> None:
        """The URL is in logs, reports and the questions of `install`."""
        path = write(tmp_path, config(cluster={"server": f"{scheme}ann:secret@localhost:6443"}))
        error = await refusal(path)
        assert "credentials in its URL" in error.what
        assert "secret" not in str(error)

    async def test_a_context_without_a_user(self, tmp_path: Path) -> None:
        contexts = [{"name": "c", "context": {"cluster": "k"}}]
        transport = await connect(write(tmp_path, config(contexts=contexts)))
        assert transport._connection.configuration.api_key == {}
        await transport.close()

    async def test_the_first_file_that_sets_a_value_wins(self, server: FakeApiServer, tmp_path: Path) -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        first.write_text(yaml.safe_dump({"current-context": "fake", "users": [{"name": "us", "user": USER}]}))
        server.kubeconfig(second, token="t1")
        second.write_text(second.read_text().replace("current-context: fake", "current-context: another"))
        transport = await connect(f"{first}:{second}")
        await transport.get("/version")
        assert server.asked[0].headers["Impersonate-User"] == "ann@example.com"
        await transport.close()

    @pytest.mark.parametrize("url", ["socks5://ann:secret@localhost:1080", "http://[", "localhost:3128"])
    async def test_a_proxy_that_is_not_spoken_is_refused_without_its_password(self, tmp_path: Path, url: str) -> None:
        error = await refusal(write(tmp_path, config(cluster={"proxy-url": url})))
        assert error.what == "not a usable kubeconfig: the proxy-url is not supported"
        assert "secret" not in str(error)

    async def test_what_is_wrong_with_a_proxy_is_said_of_it(self, server: FakeApiServer, tmp_path: Path) -> None:
        cluster = {"server": "https://api.invalid", "proxy-url": server.url}
        transport = await connect(write(tmp_path, config(cluster=cluster)))
        # It knows no CONNECT.
        assert await failure(transport.get("/version")) == "the proxy before the API server answered 404"
        await transport.close()
        cluster["proxy-url"] = "http://ann:secret@localhost:1"
        transport = await connect(write(tmp_path, config(cluster=cluster)))
        assert await failure(transport.get("/version")) == (
            "no connection to the proxy before the API server (connection refused)"
        )
        await transport.close()

    @pytest.mark.parametrize(
        ("cluster", "answers"),
        [
            ({"certificate-authority-data": "CA"}, False),
            ({"certificate-authority-data": "CA", "tls-server-name": "api.example"}, True),
            ({"insecure-skip-tls-verify": True}, True),
            ({"insecure-skip-tls-verify": False}, False),
        ],
        ids=["another name", "the name of its certificate", "unverified", "by authorities of the system"],
    )
    async def test_certificates_are_verified_as_the_cluster_says(
        self, apiservers: ApiServers, tmp_path: Path, cluster: dict[str, Any], answers: bool
    ) -> None:
        authority = trustme.CA()
        if "certificate-authority-data" in cluster:
            cluster = cluster | {"certificate-authority-data": base64.b64encode(authority.cert_pem.bytes()).decode()}
        server = await apiservers.start(tls=tls_of(authority, "api.example"))
        transport = await connect(write(tmp_path, config(cluster={"server": server.url, **cluster})))
        if answers:
            assert (await transport.get("/version"))[0] == 200
        else:
            assert "x509" in await failure(transport.get("/version"))
        await transport.close()

    async def test_no_directory_has_to_be_writable(
        self, apiservers: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not for the key of a client either: a pod may have a read-only file system, and no key belongs in a file."""
        authority = trustme.CA()
        client = authority.issue_cert("ann.example")
        pair = {"client-certificate": client.cert_chain_pems[0], "client-key": client.private_key_pem}
        user = {f"{name}-data": base64.b64encode(pem.bytes()).decode() for name, pem in pair.items()}
        data = base64.b64encode("größer\n".encode("latin-1") + authority.cert_pem.bytes()).decode()
        server = await apiservers.start(tls=tls_of(authority))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        cluster = {"server": server.url.replace("https:", "HTTPS:"), "certificate-authority-data": data}
        transport = await connect(write(tmp_path, config(cluster=cluster, user=user)))
        assert (await transport.get("/version"))[0] == 200
        await transport.close()

    async def test_requests_go_through_the_proxy(self, server: FakeApiServer, tmp_path: Path) -> None:
        cluster = {"server": "http://api.invalid", "proxy-url": server.url}
        transport = await connect(write(tmp_path, config(cluster=cluster)))
        await transport.get("/version")
        await transport.close()
        assert server.asked[0].path == "/version"


USER = {
    "token": "t0",
    "as": "ann@example.com",
    "as-uid": "1234",
    "as-groups": ["admins", "größer"],
    "as-user-extra": {"scopes": ["view", "edit"], "acme.com/Project x": ["p"]},
}


AS_ANN = [
    *("user ann@example.com", "uid 1234", "group admins", "group größer"),
    *("extra-acme.com%2fproject%20x p", "extra-scopes view", "extra-scopes edit"),
]


@asynccontextmanager
async def tunnels() -> AsyncIterator[tuple[str, list[str]]]:
    """The URL of a proxy that leads wherever ``CONNECT`` asks it to, and the heads of these requests, as they came."""
    heads: list[str] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().strip())
        host, _, port = heads[-1].split()[1].rpartition(":")
        answers, asking = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, asking), copy(answers, writer))

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        await server.wait_closed()


class TestImpersonation:
    """``as`` and its companions decide with whose permissions a command acts; none may be dropped in silence."""

    @pytest.mark.control("impersonation-is-sent")
    @pytest.mark.parametrize(
        ("user", "options", "expected"),
        [
            (USER, None, AS_ANN),
            (
                USER | {"as-user-extra": None},
                Impersonation("bob", groups=("ops",)),
                ["user bob", "uid 1234", "group ops"],
            ),
            ({"token": "t0"}, None, []),
        ],
        ids=["of the kubeconfig", "of the options", "none"],
    )
    async def test_is_sent(
        self,
        server: FakeApiServer,
        tmp_path: Path,
        user: dict[str, Any],
        options: Impersonation | None,
        expected: list[str],
    ) -> None:
        headers = (await asked(server, tmp_path, user, options)).headers
        sent = {name.lower().partition("impersonate-")[2]: headers.getall(name) for name in headers}
        assert [f"{name} {value}" for name, values in sent.items() if name for value in values] == expected
        assert headers["Authorization"] == "Bearer t0"

    async def test_is_not_told_to_a_proxy(self, apiservers: ApiServers, tmp_path: Path) -> None:
        """It gets ``CONNECT`` in clear text, whatever TLS hides after that."""
        authority = trustme.CA()
        server = await apiservers.start(tls=tls_of(authority))
        async with tunnels() as (proxy, heads):
            data = base64.b64encode(authority.cert_pem.bytes()).decode()
            cluster = {"server": server.url, "certificate-authority-data": data, "proxy-url": proxy}
            transport = await connect(write(tmp_path, config(cluster=cluster, user=USER)))
            assert (await transport.get("/version"))[0] == 200
            await transport.close()
            assert server.asked[0].headers.getall("Impersonate-Group") == USER["as-groups"]
        (head,) = heads
        assert head.startswith(f"CONNECT {server.url.removeprefix('https://')} ")
        names = {line.partition(":")[0].lower() for line in head.splitlines()[1:]}
        assert not {name for name in names if name.startswith("impersonate-") or name == "authorization"}

    @pytest.mark.control("impersonation-is-sent")
    async def test_that_cannot_be_sent_is_refused(self, tmp_path: Path) -> None:
        alone: list[dict[str, Any]] = [{"as-groups": ["a"]}, {"as-uid": "1"}, {"as": ["a"]}]
        of_other_types: list[Any] = [{"as": "a", "as-groups": "system:masters"}, {"as": "a", "as-user-extra": ["x"]}]
        for user in (*alone, *of_other_types, {"as": "a\r\nImpersonate-Group: system:masters"}):
            await refusal(write(tmp_path, config(user={"token": "t0", **user})))


@pytest.mark.control("endless-kubeconfig-files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", ODD_FILES)
@pytest.mark.parametrize("key", ["tokenFile", "client-certificate", "client-key", "certificate-authority"])
async def test_a_file_that_has_no_end_is_refused_at_once(
    tmp_path: Path, key: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    document = config(**{"cluster" if key == "certificate-authority" else "user": {key: "odd"}})
    assert str(tmp_path / "odd") in (await refusal(write(tmp_path, document))).what


def id_token(**claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("proxy", "direct", "is_asked"),
    [
        *(("", "", True), ("http://PROXY", "", True), ("PROXY", "", True), ("http://PROXY", "api.invalid", False)),
        ("http://PROXY", "172.30.0.0/16,.svc", True),
    ],
)
async def test_what_the_environment_says_to_other_programs(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, direct: str, is_asked: bool
) -> None:
    """As for kubectl, its proxies count, and the password in a .netrc does not."""
    (tmp_path / "netrc").write_text("default login ann password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", proxy.replace("PROXY", server.url.removeprefix("http://")))
    monkeypatch.setenv("no_proxy", direct)
    cluster = {"server": "http://api.invalid" if proxy else server.url}
    for user in ({}, {"token": "t0"}):
        transport = await connect(write(tmp_path, config(cluster=cluster, user=user)))
        if is_asked:
            await transport.get("/version")
            assert server.asked[-1].headers.get("Authorization", "") == ("Bearer t0" if user else "")
        else:
            assert "no such host" in await failure(transport.get("/version"))
        await transport.close()


async def test_a_server_on_this_machine_is_asked_without_the_proxy(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `kubectl proxy`, a tunnel or kind, and within the networks that NO_PROXY names, as OLM sets it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    port = server.url.rpartition(":")[2]
    for host, direct in (("127.0.0.1", ""), ("localhost", ""), ("[::ffff:127.0.0.1]", "")):
        monkeypatch.setenv("NO_PROXY", direct)
        transport = await connect(write(tmp_path, config(cluster={"server": f"http://{host}:{port}"})))
        assert (await transport.get("/version"))[0] == 200
        await transport.close()


@pytest.mark.parametrize("proxy", ["socks5://ann:secret@localhost:1080", "http://[", "localhost:port", "http://"])
async def test_a_proxy_of_the_environment_that_is_not_spoken_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    error = await refusal(write(tmp_path, config(cluster={"server": "http://api.invalid"})))
    assert str(error) == (
        "the environment variable HTTP_PROXY: the proxy is not supported; "
        "use an HTTP proxy, for example http://192.0.2.1:3128 or https://proxy.example:3128"
    )


class TestTokens:
    async def test_of_a_file_is_preferred_and_one_of_open_id_connect_is_sent(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("t1\n")
        request = await asked(server, tmp_path, {"token": "t0", "tokenFile": "token"})
        assert request.headers["Authorization"] == "Bearer t1"
        token = id_token(exp=time.time() + 600, name="???>>>~~~")
        assert {"-", "_"} & set(token)
        provider = {"name": "oidc", "config": {"id-token": token, "refresh-token": "r"}}
        request = await asked(server, tmp_path, {"auth-provider": provider})
        assert request.headers["Authorization"] == f"Bearer {token}"
        request = await asked(server, tmp_path, {"username": "ann", "password": "s:t"})
        assert request.headers["Authorization"] == f"Basic {base64.b64encode(b'ann:s:t').decode()}"

    @pytest.mark.control("refresh-tokens")
    @pytest.mark.parametrize(
        "provider",
        [
            *({"name": "gcp", "config": {"cmd-path": "/bin/true", "cmd-args": "x"}}, {"name": "azure"}),
            *({"name": "oidc"}, {"name": "oidc", "config": {"id-token": "a.b.c", "refresh-token": "r"}}),
            *({"name": "oidc", "config": {"id-token": "EXPIRED", "refresh-token": "r"}}, "oidc"),
        ],
        ids=["gcp", "azure", "no token", "no JWT", "expired", "text"],
    )
    async def test_of_other_providers_are_refused(self, tmp_path: Path, provider: Any, golden: Golden) -> None:
        text = yaml.safe_dump(config(user={"auth-provider": provider}))
        golden((await refusal(write(tmp_path, text.replace("EXPIRED", id_token(exp=time.time() - 1))))).what)

    @pytest.mark.parametrize(
        "user",
        [{"token": "t0\r\nImpersonate-User: ann"}, {"token": " "}, {"tokenFile": "two lines"}, {"tokenFile": "empty"}],
        ids=["two lines", "space", "a file of two lines", "an empty file"],
    )
    async def test_that_no_header_can_hold_are_said_before_any_request(
        self, tmp_path: Path, user: dict[str, str]
    ) -> None:
        (tmp_path / "two lines").write_text("t0\nt1")
        (tmp_path / "empty").write_text("\n")
        error = await refusal(write(tmp_path, config(user=user)))
        assert "the token" in error.what
        assert "Impersonate" not in str(error)

    async def test_of_a_file_is_read_every_minute(
        self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not when it has expired alone: a proxy may answer that in its own way. client-go reads it as often."""
        (tmp_path / "token").write_text("t0")
        transport = await connect(server.kubeconfig(tmp_path / "config", tokenFile="token"))
        (tmp_path / "token").write_text("t1")
        await transport.get("/version")
        monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
        await transport.get("/version")
        (tmp_path / "token").unlink()
        await transport.get("/version")
        assert [each.headers["Authorization"] for each in server.asked] == ["Bearer t0", "Bearer t1", "Bearer t1"]
        (warning,) = caplog.messages
        assert warning.startswith("the user of the kubeconfig stays as it was read before: ")
        await transport.close()


class TestCertificates:
    """Those of the client, and the CA that verifies the API server."""

    async def test_files_are_read_every_minute(
        self, apiservers: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        authority = trustme.CA()
        seen = []

        def names(request: web.Request) -> web.Response:
            assert request.transport is not None
            [(_, name)] = request.transport.get_extra_info("peercert")["subjectAltName"]
            seen.append(name)
            return web.Response()

        def write_pair(name: str, *, with_key: bool = True) -> None:
            made = authority.issue_cert(name)
            made.cert_chain_pems[0].write_to_path(tmp_path / "crt")
            if with_key:
                made.private_key_pem.write_to_path(tmp_path / "key")

        context = tls_of(authority)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
        authority.cert_pem.write_to_path(tmp_path / "ca.crt")
        monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
        write_pair("one.example")
        server = await apiservers.start(tls=context)
        server.answer("/version", names, times=9)
        cluster = {"server": server.url, "certificate-authority": "ca.crt"}
        user = {"client-certificate": "crt", "client-key": "key"}
        transport = await connect(write(tmp_path, config(cluster=cluster, user=user)))
        await transport.get("/version")
        write_pair("two.example", with_key=False)
        await transport.get("/version")
        assert len(caplog.messages) == 1, "the key may come a moment later"
        write_pair("three.example")
        await transport.get("/version")
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
        assert "x509" in await failure(transport.get("/version"))
        authority.cert_pem.write_to_path(tmp_path / "ca.crt")
        await transport.get("/version")
        await transport.close()
        assert seen == ["one.example", "one.example", "three.example", "three.example"]

    async def test_one_without_a_key_is_refused(self, tmp_path: Path) -> None:
        """As kubectl does, instead of requests that are anonymous."""
        data = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
        assert "no key" in (await refusal(write(tmp_path, config(user={"client-certificate-data": data})))).what


API = "client.authentication.k8s.io/v1"


def plugin(script: str, **changes: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": API, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"} | changes}


def credential(status: Any, version: str = API) -> str:
    return f"echo '{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}'"


async def slow_plugin(server: FakeApiServer, tmp_path: Path) -> tuple[KubernetesTransport, Callable[[], list[str]]]:
    """A connection whose token was denied since, and the processes of its plugin, which next waits for a file `go`."""
    log, go = tmp_path / "runs", tmp_path / "go"
    script = f"echo $$ >> {log}; while [ ! -e {go} ]; do sleep 0.05; done; cat {tmp_path / 'answer'}"
    first, second = (credential({"token": token}).removeprefix("echo '").removesuffix("'") for token in ("t0", "t1"))
    (tmp_path / "answer").write_text(first)
    go.touch()
    transport = await connect(write(tmp_path, config(cluster={"server": server.url}, user=plugin(script))))
    go.unlink()
    (tmp_path / "answer").write_text(second)
    server.token = "t1"
    return transport, lambda: log.read_text().split()


@pytest.mark.timeout(30)
class TestPlugins:
    @pytest.mark.parametrize("is_relative", [False, True])
    async def test_its_token_is_sent(self, server: FakeApiServer, tmp_path: Path, is_relative: bool) -> None:
        """Its path is relative to the kubeconfig."""
        script = 'test "$WORD" = w && ' + credential({"token": "t7"})
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "login").write_text(f"#!/bin/sh\n{script}")
        (tmp_path / "bin" / "login").chmod(0o755)
        user = plugin(script, env=[{"name": "WORD", "value": "w"}])
        if is_relative:
            user["exec"] |= {"command": "bin/login", "args": None}
        assert (await asked(server, tmp_path, user)).headers["Authorization"] == "Bearer t7"

    async def test_it_is_given_the_cluster_where_it_wants_it(self, tmp_path: Path) -> None:
        authority = trustme.CA().cert_pem.bytes()
        (tmp_path / "ca.crt").write_bytes(authority)
        info = tmp_path / "info.json"
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        cluster = {"tls-server-name": "api", "certificate-authority": "ca.crt"}
        cluster["extensions"] = [{"name": "other", "extension": 1}, extension]  # type: ignore[assignment]
        script = f'printf %s "$KUBERNETES_EXEC_INFO" > {info}; ' + credential({"token": "t"})
        user = plugin(script, provideClusterInfo=True)
        await (await connect(write(tmp_path, config(cluster=cluster, user=user)))).close()
        pem = base64.b64encode(authority).decode()
        told = LOCAL | {"tls-server-name": "api", "certificate-authority-data": pem, "config": {"audience": "x"}}
        spec = {"interactive": False, "cluster": told}
        assert json.loads(info.read_text()) == {"apiVersion": API, "kind": "ExecCredential", "spec": spec}
        (tmp_path / "other").write_text(yaml.safe_dump(config(cluster={"extensions": 3})))
        path = f"{write(tmp_path, config(user=user, clusters=[]))}:{tmp_path / 'other'}"
        assert (await refusal(path)).where == str(tmp_path / "other"), "the file of the cluster"

    @pytest.mark.control("keys-left-in-files")
    async def test_a_new_certificate_of_it_is_used_after_a_denial(
        self, apiservers: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        authority = trustme.CA()
        for name in ("one", "two"):
            made = authority.issue_cert(f"{name}.example")
            certificate, key = (part.bytes().decode() for part in (made.cert_chain_pems[0], made.private_key_pem))
            script = credential({"clientCertificateData": certificate, "clientKeyData": key})
            (tmp_path / name).write_text(script.removeprefix("echo '").removesuffix("'"))
        (tmp_path / "now").symlink_to(tmp_path / "one")
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        context = tls_of(authority)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
        authority.cert_pem.write_to_path(tmp_path / "ca.crt")
        seen = []

        def names(request: web.Request) -> web.Response:
            assert request.transport is not None
            [(_, name)] = request.transport.get_extra_info("peercert")["subjectAltName"]
            seen.append(name)
            return web.Response(status=401 if name == "one.example" else 200)

        server = await apiservers.start(tls=context)
        server.answer("/version", names, times=9)
        cluster = {"server": server.url, "certificate-authority": "ca.crt"}
        transport = await connect(write(tmp_path, config(cluster=cluster, user=plugin(f"cat {tmp_path / 'now'}"))))
        (tmp_path / "now").unlink()
        (tmp_path / "now").symlink_to(tmp_path / "two")
        answers = await asyncio.gather(transport.get("/version"), transport.get("/version"))
        assert [status for status, _ in answers] == [200, 200]
        await transport.close()
        assert sorted(seen) == ["one.example"] * 2 + ["two.example"] * 2
        assert [*(tmp_path / "temporary").iterdir()] == [], "no key stays in a file"

    async def test_what_it_says_to_its_user_is_no_part_of_it(self, server: FakeApiServer, tmp_path: Path) -> None:
        """More than a pipe holds that nobody reads."""
        user = plugin("head -c 300000 /dev/zero | tr '\\0' . >&2; " + credential({"token": "t7"}))
        assert (await asked(server, tmp_path, user)).headers["Authorization"] == "Bearer t7"

    async def test_a_request_that_is_left_does_not_end_it(self, server: FakeApiServer, tmp_path: Path) -> None:
        """The others wait for the same plugin, which may be talking with its user."""
        transport, runs = await slow_plugin(server, tmp_path)
        left, waits = (asyncio.create_task(transport.get("/version")) for _ in range(2))
        await until(lambda: len(runs()) == 2 and len(server.asked) == 2)
        left.cancel()
        await asyncio.wait([left])
        later = asyncio.create_task(transport.get("/version"))
        await until(lambda: len(server.asked) == 3)
        (tmp_path / "go").touch()
        assert [(await task)[0] for task in (waits, later)] == [200, 200]
        assert (left.cancelled(), len(runs())) == (True, 2)
        await transport.close()

    async def test_it_runs_again_once_its_credentials_have_expired(
        self, server: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As kubectl: before a request is sent. When it fails then, the API server decides about what there is."""
        answer = tmp_path / "answer"

        def prints(token: str, expires: str | None) -> None:
            status = {"token": token} | ({"expirationTimestamp": expires} if expires else {})
            answer.write_text(credential(status).removeprefix("echo '").removesuffix("'"))

        prints("t0", "2001-02-03T04:05:06Z")
        user = plugin(f"echo run >> {tmp_path / 'runs'}; cat {answer}")
        transport = await connect(write(tmp_path, config(cluster={"server": server.url}, user=user)))
        prints("t1", "2999-01-01T00:00:00+01:00")
        await asyncio.gather(transport.get("/version"), transport.get("/version"))
        assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer t1"] * 2
        assert (tmp_path / "runs").read_text().split() == ["run"] * 2
        monkeypatch.setattr(time, "time", lambda: 40_000_000_000.0)
        monkeypatch.setattr(adapter, "_RENEW_SECONDS", 0.0)
        answer.unlink()
        assert (await transport.get("/version"))[0] == 200
        assert "the credentials have expired, and there are no others" in caplog.messages[0]
        prints("t2", None)
        for _ in range(2):
            await transport.get("/version")
        assert server.asked[-1].headers["Authorization"] == "Bearer t2"
        assert (tmp_path / "runs").read_text().split() == ["run"] * 4
        await transport.close()

    async def test_a_kubeconfig_is_read_again_beside_requests(
        self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of several MiB would hold up all of them, and reviews."""
        transport = await connect(write(tmp_path, config(cluster={"server": server.url})))
        readers = list[threading.Thread]()
        read = kubeconfig.read

        def noted(path: str) -> kubeconfig.Context:
            readers.append(threading.current_thread())
            return read(path)

        monkeypatch.setattr(kubeconfig, "read", noted)
        server.token = "t1"
        assert (await transport.get("/version"))[0] == 401
        assert len(readers) == 1
        assert threading.main_thread() not in readers
        await transport.close()

    async def test_it_ends_with_the_connection(self, server: FakeApiServer, tmp_path: Path) -> None:
        transport, runs = await slow_plugin(server, tmp_path)
        denied = asyncio.create_task(transport.get("/version"))
        await until(lambda: len(runs()) == 2)
        await transport.close()
        assert not Path(f"/proc/{runs()[1]}").exists()
        assert await failure(denied)

    async def test_that_it_fails_after_a_denial_is_said(
        self, server: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without its words, which may hold a secret."""
        script = f"cat {tmp_path / 'answer'} || {{ echo SECRET >&2; exit 7; }}"
        (tmp_path / "answer").write_text(credential({"token": "t0"}).removeprefix("echo '").removesuffix("'"))
        transport = await connect(write(tmp_path, config(cluster={"server": server.url}, user=plugin(script))))
        (tmp_path / "answer").unlink()
        server.token = "t1"
        assert [(await transport.get("/version"))[0] for _ in range(3)] == [401] * 3
        (warning,) = caplog.messages
        assert 'the plugin "sh" failed with exit status 7' in warning
        assert "SECRET" not in warning
        await transport.close()

    @pytest.mark.control("endless-kubeconfig-files")
    @pytest.mark.parametrize(
        "user",
        [
            *(plugin("yes"), plugin("sleep 60"), plugin("echo failed >&2; exit 3"), plugin("echo nonsense")),
            *(plugin("echo '[]'"), plugin(credential({})), plugin(credential({"clientCertificateData": "x"}))),
            *(plugin(credential(status)) for status in (None, "t", {"token": ["t"]}, {"clientCertificateData": 5})),
            plugin(credential({"token": "t"}, "client.authentication.k8s.io/v1beta1")),
            plugin("", command="no-such-plugin", installHint="see https://example.com"),
            *(plugin("", interactiveMode="Always"), {"exec": {"command": "sh"}}, {"exec": "sh"}),
        ],
        ids=[
            *("endless", "hanging", "failing", "no JSON", "list", "empty", "no key", "no status", "a text as status"),
            *("a token in a list", "a number as certificate", "other version", "not installed"),
            *("no terminal", "no version", "text"),
        ],
    )
    async def test_what_is_no_credential_is_told_in_one_sentence(
        self, tmp_path: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        if user == plugin("sleep 60"):
            monkeypatch.setattr("webhook.k8s.client.adapter._PLUGIN_SECONDS", 1.0)
        error = await refusal(write(tmp_path, config(user=user)))
        golden(f"{error.what}; {error.fix}")

    @pytest.mark.parametrize("end", ["soon", 5, "2030-01-01T00:00:00"])
    async def test_an_end_that_is_no_time_is_no_credential(self, tmp_path: Path, end: Any) -> None:
        user = plugin(credential({"token": "t", "expirationTimestamp": end}))
        assert "does not print an ExecCredential" in (await refusal(write(tmp_path, config(user=user)))).what


async def test_no_secret_is_printed_in_passing(tmp_path: Path) -> None:
    """As a traceback with local variables, a debugger or a log of a value would."""
    pair = trustme.CA().issue_cert("ann.example")
    parts = {"client-certificate": pair.cert_chain_pems[0].bytes(), "client-key": pair.private_key_pem.bytes()}
    user = {f"{name}-data": base64.b64encode(pem).decode() for name, pem in parts.items()}
    secrets = ["SECRET", user["client-key-data"][100:140], parts["client-key"].decode().splitlines()[1]]
    user |= {"token": "SECRET-token", "password": "SECRET-password", "username": "ann"}
    context = kubeconfig.read(write(tmp_path, config(user=user, cluster={"proxy-url": "http://ann:SECRET@localhost"})))
    login = await adapter._log_in(context)
    status = adapter._ExecStatus(token="SECRET-token", client_key_data=parts["client-key"].decode())
    printed = repr([context, login, login.handshake, adapter._ExecCredential("v1", status)])
    assert [secret for secret in secrets if secret in printed] == []


async def test_the_advice_on_proxies_is_printed_whole(tmp_path: Path) -> None:
    """The command line hides what looks like a password in a URL."""
    cluster = {"server": "https://api.invalid", "proxy-url": "socks5://localhost:1080"}
    error = await refusal(write(tmp_path, config(cluster=cluster)))
    assert error.fix in scrub_prose(str(error))


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("cluster", "certificate-authority-data", "DATA+OMITTED"),
        *(("user", "client-key-data", "DATA+OMITTED"), ("user", "token", "REDACTED")),
    ],
)
async def test_what_kubectl_config_view_leaves_out(tmp_path: Path, part: str, key: str, value: str) -> None:
    error = await refusal(write(tmp_path, config(**{part: {"server": "https://api.invalid", key: value}})))
    assert error.what == f"not a usable kubeconfig: {key} is left out"
    assert "--raw" in error.fix
