"""Kubeconfig files, and the errors in them."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.errors import InputError
from webhook.k8s.client import credentials
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.client.transport import connect


def config(**changes: Any) -> dict[str, Any]:
    cluster = changes.pop("cluster", {"server": "https://localhost:1"})
    user = changes.pop("user", {"token": "t0"})
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    } | changes


NOT_PEM = base64.b64encode(b"not a certificate").decode()


class TestKubeconfig:
    @pytest.mark.parametrize(
        ("document", "fix"),
        [
            ("just text", "--kubeconfig"),
            ("", "--kubeconfig"),
            ("a: [", "repair"),
            ("a: \x01", "repair"),
            (config(**{"current-context": ""}), "use-context"),
            ({}, "use-context"),
            (config(**{"current-context": "z"}), "repair"),
            (config(contexts=None), "repair"),
            (config(users=[]), "repair"),
            (config(clusters=[]), "repair"),
            (config(clusters=["x"]), "repair"),
            (config(users=[{"name": "u", "user": "x"}]), "repair"),
            (config(cluster={"insecure-skip-tls-verify": True}), "add it"),
            (config(cluster={"server": "https://localhost:1", "certificate-authority-data": NOT_PEM}), "repair"),
            (config(cluster={"server": "https://localhost:1", "certificate-authority-data": "abc"}), "repair"),
            (config(cluster={"server": "https://localhost:1", "certificate-authority": "nowhere.crt"}), "repair"),
            (config(user={"client-certificate-data": NOT_PEM, "client-key-data": NOT_PEM}), "repair"),
            (config(user={"tokenFile": "nowhere"}), "repair"),
        ],
        ids=[
            *("text", "empty", "not YAML", "control character", "empty context", "no context", "another context"),
            *("no contexts", "no users", "no clusters", "clusters of text", "users of text", "no server", "CA not PEM"),
            *("CA not base64", "no CA file", "certificate not PEM", "no token file"),
        ],
    )
    async def test_mistakes_are_told_in_one_sentence(
        self, tmp_path: Path, document: Any, fix: str, golden: Callable[[str], None]
    ) -> None:
        file = tmp_path / "config"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        with pytest.raises(InputError) as caught:
            await connect(str(file))
        golden(caught.value.what)
        assert fix in caught.value.fix
        assert caught.value.where == str(file)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 300 + "1" + "}" * 300])
    async def test_depth_is_found_before_it_is_parsed(
        self, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
    ) -> None:
        """By a parser that takes the square of it."""
        file = tmp_path / "config"
        file.write_text(text)
        monkeypatch.setattr("webhook.k8s.client.kubeconfig.yaml.safe_load", None)
        golden((await refusal(str(file))).what)

    async def test_that_is_not_there(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        golden((await refusal(str(tmp_path / "missing"))).what)

    async def test_that_is_a_directory(self, tmp_path: Path) -> None:
        assert "Is a directory" in str(await refusal(str(tmp_path)))

    async def test_by_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        server = FakeApiServer()
        async with running(server):
            file = server.kubeconfig(tmp_path / "config")
            monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{file}")
            transport = await connect()
            assert (await transport.get("/version"))[0] == 200
            await transport.close()

    async def test_where_kubectl_looks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(InputError) as caught:
            await connect()
        assert caught.value.where == str(tmp_path / ".kube" / "config")

    async def test_a_server_that_is_no_url(self, tmp_path: Path) -> None:
        file = tmp_path / "config"
        file.write_text(yaml.safe_dump(config(cluster={"server": "://"})))
        transport = await connect(str(file))
        with pytest.raises(ApiConnectionError) as caught:
            await transport.get("/version")
        assert "broke" in caught.value.why
        await transport.close()


def write(tmp_path: Path, document: dict[str, Any]) -> str:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(document))
    return str(file)


@asynccontextmanager
async def served(
    tmp_path: Path, user: dict[str, Any], options: Impersonation | None = None
) -> AsyncIterator[FakeApiServer]:
    """A server after one request of a user."""
    server = FakeApiServer()
    async with running(server):
        path = server.kubeconfig(tmp_path / "config", **user)
        transport = await connect(Kubeconfig(path, options) if options else path)
        try:
            await transport.get("/version")
            yield server
        finally:
            await transport.close()


async def refusal(path: str) -> InputError:
    with pytest.raises(InputError) as caught:
        await connect(path)
    assert "\n" not in str(caught.value)
    return caught.value


USER = {
    "token": "t0",
    "as": "ann@example.com",
    "as-uid": "1234",
    "as-groups": ["admins", "größer"],
    "as-user-extra": {"scopes": ["view", "edit"], "acme.com/Project x": ["p"]},
}


class TestImpersonation:
    """``as`` and its companions decide with whose permissions a command acts; none may be dropped in silence."""

    async def test_of_a_kubeconfig_is_sent(self, tmp_path: Path) -> None:
        async with served(tmp_path, USER) as server:
            headers = server.asked[0].headers
            assert headers["Authorization"] == "Bearer t0"
            assert headers["Impersonate-User"] == "ann@example.com"
            assert headers["Impersonate-Uid"] == "1234"
            assert headers.getall("Impersonate-Group") == ["admins", "größer"]
            assert headers.getall("Impersonate-Extra-scopes") == ["view", "edit"]
            assert headers.getall("Impersonate-Extra-acme.com%2fproject%20x") == ["p"]

    async def test_of_the_options_replaces_the_same_fields(self, tmp_path: Path) -> None:
        async with served(tmp_path, USER, Impersonation("bob", groups=("ops",))) as server:
            headers = server.asked[0].headers
            assert headers["Impersonate-User"] == "bob"
            assert headers["Impersonate-Uid"] == "1234"
            assert headers.getall("Impersonate-Group") == ["ops"]

    async def test_no_header_without(self, tmp_path: Path) -> None:
        async with served(tmp_path, {}) as server:
            assert not [name for name in server.asked[0].headers if name.startswith("Impersonate")]

    @pytest.mark.parametrize(
        "user",
        [
            {"as-groups": ["a"]},
            {"as-uid": "1"},
            {"as": "a\r\nImpersonate-Group: system:masters"},
            {"as": ["a"]},
            {"as": "a", "as-groups": "system:masters"},
            {"as": "a", "as-user-extra": ["x"]},
        ],
        ids=["groups alone", "UID alone", "line break", "list", "groups of text", "extra list"],
    )
    async def test_that_cannot_be_sent_is_refused(self, tmp_path: Path, user: dict[str, Any]) -> None:
        await refusal(write(tmp_path, config(user={"token": "t0", **user})))

    async def test_in_a_pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
        (tmp_path / "token").write_text("t0")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
        transport = await connect(Kubeconfig(impersonation=Impersonation("bob")))
        assert transport._credentials.impersonation == [("Impersonate-User", "bob")]
        await transport.close()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [device, pipe, large])
@pytest.mark.parametrize("key", ["tokenFile", "client-certificate", "client-key", "certificate-authority"])
async def test_a_file_that_has_no_end_is_refused_at_once(
    tmp_path: Path, key: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    cluster = {"server": "https://localhost:1"}
    part = {key: "odd"}
    document = config(cluster=cluster | part) if key == "certificate-authority" else config(cluster=cluster, user=part)
    error = await refusal(write(tmp_path, document))
    assert str(tmp_path / "odd") in error.what


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [device, pipe, large])
@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_nor_are_such_files_of_a_service_account_read(
    tmp_path: Path, name: str, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0")
    (tmp_path / name).unlink()
    make(tmp_path / name)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(InputError) as caught:
        credentials.ServiceAccount(tmp_path)
    assert str(tmp_path / name) in caught.value.what


class TestTokens:
    async def test_of_a_file_is_preferred_and_ends_where_its_text_ends(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("t1\n")
        async with served(tmp_path, {"token": "t0", "tokenFile": "token"}) as server:
            assert server.asked[0].headers["Authorization"] == "Bearer t1"

    async def test_of_open_id_connect(self, tmp_path: Path) -> None:
        # Characters that only URL-safe base64 has: ? and > make - and _.
        token = id_token(exp=time.time() + 600, name="???>>>~~~")
        assert {"-", "_"} & set(token)
        provider = {"name": "oidc", "config": {"id-token": token, "refresh-token": "r"}}
        async with served(tmp_path, {"auth-provider": provider}) as server:
            assert server.asked[0].headers["Authorization"] == f"Bearer {token}"

    @pytest.mark.parametrize(
        "provider",
        [
            {"name": "gcp", "config": {"cmd-path": "/bin/true", "cmd-args": "x"}},
            {"name": "azure"},
            {"name": "oidc"},
            {"name": "oidc", "config": {"id-token": "a.b.c", "refresh-token": "r"}},
            {"name": "oidc", "config": {"id-token": "EXPIRED", "refresh-token": "r"}},
            "oidc",
        ],
        ids=["gcp", "azure", "no token", "no JWT", "expired", "text"],
    )
    async def test_of_other_providers_are_refused(
        self, tmp_path: Path, provider: Any, golden: Callable[[str], None]
    ) -> None:
        text = yaml.safe_dump(config(user={"auth-provider": provider}))
        (tmp_path / "config").write_text(text.replace("EXPIRED", id_token(exp=time.time() - 1)))
        golden(str((await refusal(str(tmp_path / "config"))).what))


def id_token(**claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.c2ln"


API = "client.authentication.k8s.io/v1"


def plugin(script: str, **changes: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": API, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"} | changes}


def credential(status: dict[str, Any], version: str = API) -> str:
    return f"echo '{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}'"


@pytest.mark.timeout(30)
class TestPlugins:
    async def test_its_token_is_sent(self, tmp_path: Path) -> None:
        user = plugin('test "$WORD" = w && ' + credential({"token": "t7"}), env=[{"name": "WORD", "value": "w"}])
        async with served(tmp_path, user) as server:
            assert server.asked[0].headers["Authorization"] == "Bearer t7"

    async def test_its_path_is_relative_to_the_kubeconfig(self, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        script = tmp_path / "bin" / "login"
        script.write_text("#!/bin/sh\n" + credential({"token": "t7"}))
        script.chmod(0o755)
        user = plugin("", command="bin/login", args=None)
        async with served(tmp_path, user) as server:
            assert server.asked[0].headers["Authorization"] == "Bearer t7"

    async def test_it_is_given_the_cluster_where_it_wants_it(self, tmp_path: Path) -> None:
        authority = trustme.CA().cert_pem.bytes()
        (tmp_path / "ca.crt").write_bytes(authority)
        info = tmp_path / "info.json"
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        cluster = {
            "server": "https://localhost:1",
            "tls-server-name": "api",
            "certificate-authority": "ca.crt",
            "extensions": [{"name": "other", "extension": 1}, extension],
        }
        user = plugin(f'printf %s "$KUBERNETES_EXEC_INFO" > {info}; ' + credential({"token": "t"}))
        user["exec"]["provideClusterInfo"] = True
        transport = await connect(write(tmp_path, config(cluster=cluster, user=user)))
        await transport.close()
        assert json.loads(info.read_text()) == {
            "apiVersion": API,
            "kind": "ExecCredential",
            "spec": {
                "interactive": False,
                "cluster": {
                    "server": "https://localhost:1",
                    "tls-server-name": "api",
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                    "config": {"audience": "x"},
                },
            },
        }

    async def test_a_new_certificate_of_it_is_used_after_a_denial(self, tmp_path: Path) -> None:
        authority = trustme.CA()
        for name in ("one", "two"):
            made = authority.issue_cert(f"{name}.example")
            pair = {"clientCertificateData": made.cert_chain_pems[0].bytes().decode()}
            status = pair | {"clientKeyData": made.private_key_pem.bytes().decode()}
            answer = {"apiVersion": API, "kind": "ExecCredential", "status": status}
            (tmp_path / name).write_text(json.dumps(answer))
        (tmp_path / "now").symlink_to(tmp_path / "one")
        server = FakeApiServer()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
        authority.cert_pem.write_to_path(tmp_path / "ca.crt")
        seen = []

        def names(request: web.Request) -> web.Response:
            transport = request.transport
            assert transport is not None
            [(_, name)] = transport.get_extra_info("peercert")["subjectAltName"]
            seen.append(name)
            return web.Response(status=401 if name == "one.example" else 200)

        async with running(server, context):
            server.answer("/version", names, times=9)
            cluster = {"server": server.url, "certificate-authority": "ca.crt"}
            path = write(tmp_path, config(cluster=cluster, user=plugin(f"cat {tmp_path / 'now'}")))
            transport = await connect(path)
            (tmp_path / "now").unlink()
            (tmp_path / "now").symlink_to(tmp_path / "two")
            assert (await transport.get("/version"))[0] == 200
            await transport.close()
        assert seen == ["one.example", "two.example"]

    @pytest.mark.parametrize(
        "user",
        [
            plugin("yes"),
            plugin("sleep 60"),
            plugin("echo failed >&2; exit 3"),
            plugin("echo nonsense"),
            plugin("echo '[]'"),
            plugin(credential({})),
            plugin(credential({"clientCertificateData": "x"})),
            plugin(credential({"token": "t"}, "client.authentication.k8s.io/v1beta1")),
            plugin("", command="no-such-plugin", installHint="see https://example.com"),
            plugin("", interactiveMode="Always"),
            {"exec": {"command": "sh"}},
            {"exec": "sh"},
        ],
        ids=[
            *("endless", "hanging", "failing", "no JSON", "list", "empty", "no key", "other version", "not installed"),
            *("no terminal", "no version", "text"),
        ],
    )
    async def test_what_is_no_credential_is_told_in_one_sentence(
        self, tmp_path: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
    ) -> None:
        monkeypatch.setattr("webhook.k8s.client.kubeconfig._PLUGIN_SECONDS", 1.0)
        error = await refusal(write(tmp_path, config(user=user)))
        golden(f"{error.what}; {error.fix}")


class TestSeveralFiles:
    async def test_the_first_that_sets_a_value_wins(self, tmp_path: Path) -> None:
        async with running(FakeApiServer()) as server:
            first = tmp_path / "first"
            first.write_text(yaml.safe_dump({"current-context": "fake", "users": [{"name": "us", "user": USER}]}))
            second = server.kubeconfig(tmp_path / "second", token="t1")
            text = Path(second).read_text().replace("current-context: fake", "current-context: another")
            Path(second).write_text(text)
            transport = await connect(f"{first}:{second}")
            await transport.get("/version")
            assert server.asked[0].headers["Impersonate-User"] == "ann@example.com"
            await transport.close()


async def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    document = config()
    del document["contexts"][0]["context"]["user"]
    transport = await connect(write(tmp_path, document))
    assert await transport._credentials.authorization() == ""
    await transport.close()


@pytest.mark.parametrize("url", ["socks5://localhost:1080", "http://[", "localhost:3128"])
async def test_a_proxy_that_is_not_spoken_is_refused(tmp_path: Path, url: str) -> None:
    cluster = {"server": "https://localhost:1", "proxy-url": url}
    assert url in (await refusal(write(tmp_path, config(cluster=cluster)))).what


async def test_requests_go_through_the_proxy(tmp_path: Path) -> None:
    async with running(FakeApiServer()) as proxy:
        cluster = {"server": "http://api.invalid", "proxy-url": proxy.url}
        transport = await connect(write(tmp_path, config(cluster=cluster)))
        await transport.get("/version")
        await transport.close()
        assert proxy.asked[0].path == "/version"
