"""The client of the API server, against a real one: as whom its requests are evaluated, and how they get there."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from webhook.k8s.client import adapter
from webhook.k8s.client.identity import Impersonation, Kubeconfig
from webhook.k8s.client.transport import KubernetesTransport, connect
from webhook.k8s.paths import object_path
from webhook.k8s.resources import NAMESPACES

from .support.access import Access
from .support.objects import ensure_namespace, obj
from .support.pki import ADMIN

REVIEWS = object_path("authentication.k8s.io/v1", "selfsubjectreviews")


async def who(transport: KubernetesTransport) -> dict[str, Any]:
    """The user of a request, as the API server sees it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, body = await transport.request("POST", REVIEWS, body=review)
    assert status == 201, body
    user: dict[str, Any] = msgspec.json.decode(body)["status"]["userInfo"]
    return user


def written(plane: Access, directory: Path, user: dict[str, Any], **cluster: Any) -> str:
    """A kubeconfig of the plane for a user, with changes of its cluster."""
    document = json.loads(plane.kubeconfig_for(*ADMIN).read_text())
    document["clusters"][0]["cluster"] |= cluster
    document["users"][0]["user"] = user
    file = directory / f"kubeconfig-{secrets.token_hex(4)}"
    file.write_text(json.dumps(document))
    return str(file)


def of_admin(plane: Access) -> dict[str, Any]:
    user: dict[str, Any] = json.loads(plane.kubeconfig_for(*ADMIN).read_text())["users"][0]["user"]
    return user


async def test_requests_are_those_of_the_user_that_the_kubeconfig_and_the_options_say(
    plane: Access, tmp_path: Path
) -> None:
    extra = {"acme.com/p x": ["1", "2"]}
    acts_as = {"as": "ann", "as-uid": "u1", "as-groups": ["ops", "größer"], "as-user-extra": extra}
    path = written(plane, tmp_path, of_admin(plane) | acts_as)
    transport = await connect(path)
    found = await who(transport)
    assert (found["username"], found["uid"], found["extra"]) == ("ann", "u1", extra)
    assert {"ops", "größer"} <= {*found["groups"]}
    status, _ = await transport.get(NAMESPACES.path())
    assert status == 403, "ann may nothing, the admin behind her everything"
    await transport.close()
    transport = await connect(Kubeconfig(path, Impersonation("bob")))
    assert (await who(transport))["username"] == "bob"
    await transport.close()


async def test_a_service_account_whose_files_change(
    plane: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token and the CA are replaced, and for a moment there is none."""
    namespace, name = "client", f"account-{secrets.token_hex(4)}"
    ensure_namespace(plane.admin, namespace)
    place = urlsplit(plane.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(place.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(place.port))
    # A kubeconfig would come first.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(adapter, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(adapter, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.0)
    (tmp_path / "token").write_text(plane.token(namespace, name))
    (tmp_path / "ca.crt").write_bytes(plane.pki.ca.read_bytes())
    transport = await connect()
    assert (await who(transport))["username"] == f"system:serviceaccount:{namespace}:{name}"
    for file, content in (("token", b""), ("ca.crt", b"-----BEGIN CERTIFICATE-----\nMIIB")):
        former = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(content)
        assert (await who(transport))["username"].endswith(name)
        (tmp_path / file).write_bytes(former)
    (tmp_path / "token").write_text(plane.token(namespace, f"{name}-2"))
    (tmp_path / "ca.crt").write_bytes(plane.pki.ca.read_bytes() * 2)
    assert (await who(transport))["username"].endswith(f"{name}-2")
    (tmp_path / "token").write_text("invalid")
    status, _ = await transport.get(NAMESPACES.path())
    assert status == 401
    (tmp_path / "token").write_text(plane.token(namespace, name))
    assert (await who(transport))["username"].endswith(name)
    await transport.close()


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that leads to a port of this machine, whatever host is asked for; its URL, and what was asked for.

    aiohttp's servers have no tunnels (``CONNECT``).
    """
    asked: list[str] = []
    serving: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving.add(task)
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ways = [asyncio.create_task(copy(reader, behind_writer)), asyncio.create_task(copy(behind_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, behind_writer):
                each.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        # A transport that is aborted is closed in the next turn.
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("host", "variables", "is_asked"),
    [
        ("api.invalid", {"HTTPS_PROXY": "PROXY"}, True),
        ("api.invalid", {"https_proxy": "PROXY", "NO_PROXY": "172.30.0.0/16,.svc"}, True),
        ("172.30.0.1", {"HTTPS_PROXY": "PROXY"}, True),
        ("api.invalid", {"proxy-url": "PROXY", "NO_PROXY": "*"}, True),
        ("127.0.0.1", {"HTTPS_PROXY": "PROXY"}, False),
        ("localhost", {"HTTPS_PROXY": "PROXY"}, False),
        ("127.0.0.1", {"proxy-url": "PROXY"}, True),
    ],
)
async def test_requests_and_watches_go_through_the_proxy_that_go_would_take(
    plane: Access,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    variables: dict[str, str],
    is_asked: bool,
) -> None:
    port = urlsplit(plane.server).port
    assert port
    async with proxy(port) as (url, asked):
        cluster = {"server": f"https://{host}:{port}", "tls-server-name": "localhost"}
        for name, value in variables.items():
            if name == "proxy-url":
                cluster[name] = url
            else:
                monkeypatch.setenv(name, value.replace("PROXY", url))
        transport = await connect(written(plane, tmp_path, of_admin(plane), **cluster))
        assert (await who(transport))["username"] == ADMIN.user
        async with aclosing(transport.watch(NAMESPACES.path(), {"watch": "true"})) as pieces:
            assert await anext(pieces) == b""
            assert await anext(pieces)
        await transport.close()
        assert {*asked} == ({f"CONNECT {host}:{port} HTTP/1.1"} if is_asked else set())


async def test_a_plugin_is_given_the_cluster_and_its_certificate_logs_in(plane: Access, tmp_path: Path) -> None:
    """Whatever else it writes: more than a pipe holds on standard error."""
    pem = plane.pki.client("plugin-user", ["ops"]).read_text()
    status = {"clientCertificateData": pem, "clientKeyData": pem}
    version = "client.authentication.k8s.io/v1"
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    script = 'head -c 200000 /dev/zero >&2; printf %s "$KUBERNETES_EXEC_INFO" > info; cat answer'
    (tmp_path / "login").write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{script}\n')
    (tmp_path / "login").chmod(0o755)
    plugin = {"apiVersion": version, "command": "./login", "provideClusterInfo": True, "interactiveMode": "Never"}
    transport = await connect(written(plane, tmp_path, {"exec": plugin}))
    found = await who(transport)
    assert (found["username"], "ops" in found["groups"]) == ("plugin-user", True)
    await transport.close()
    told = json.loads((tmp_path / "info").read_text())["spec"]["cluster"]
    ca = base64.b64encode(plane.pki.ca.read_bytes()).decode()
    assert (told["server"], told["certificate-authority-data"]) == (plane.server, ca)


async def test_a_name_is_one_object_whatever_it_is(plane: Access, tmp_path: Path) -> None:
    """No query of it, no part and no other object: what is dry stays dry."""
    namespace = "client"
    ensure_namespace(plane.admin, namespace)
    plane.admin.apply(obj("ConfigMap", "web", namespace=namespace, data={"a": "b"}))
    transport = await connect(written(plane, tmp_path, of_admin(plane)))
    for name in ("web?x=", "web#", "web?dryRun=", "web;x", "web&x=", "Web", "web "):
        path = object_path("v1", "configmaps", namespace, name)
        query = {"dryRun": "All"}
        status, _ = await transport.request("PATCH", path, query, {"data": {"a": "c"}}, "application/merge-patch+json")
        assert status == 404, name
        assert (await transport.request("DELETE", path, query))[0] == 404, name
    status, body = await transport.get(object_path("v1", "configmaps", namespace, "web"))
    assert (status, msgspec.json.decode(body)["data"]) == (200, {"a": "b"})
    await transport.close()
