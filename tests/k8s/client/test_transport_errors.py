"""Why there was no answer, in words that name the cause and no address."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import aiohttp
import pytest

from tests.k8s.client.test_transport import PATH, connected, failure
from webhook.errors import InputError
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.client.transport import connect


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), "cannot be resolved now"),
        (OSError(errno.EHOSTUNREACH, "10.1.2.3"), "no route to host"),
        (OSError(errno.ENETUNREACH, "10.1.2.3"), "network is unreachable"),
        (OSError(errno.EMFILE, "10.1.2.3"), "EMFILE"),
        (OSError("10.1.2.3"), "unknown error"),
    ],
)
async def test_the_cause_is_told_and_no_address(
    tmp_path: Path, error: OSError, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path) as (_, transport):
        key = cast("Any", SimpleNamespace(host="prod.example", port=6443, ssl=True, is_ssl=True))

        async def connect(*args: Any, **options: Any) -> NoReturn:
            raise aiohttp.ClientConnectorError(key, error)

        monkeypatch.setattr(transport._credentials, "send", connect)
        assert (await failure(transport.get(PATH))).endswith(f"{cause})")


async def test_a_name_that_nobody_has(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, _):
        server.url = "http://nobody.invalid:1"
        other = await connect(server.kubeconfig(tmp_path / "nobody"))
        with pytest.raises(ApiConnectionError) as caught:
            await other.get(PATH)
        assert caught.value.why.startswith("no connection ")
        assert "nobody" not in caught.value.why
        await other.close()


async def test_a_server_without_tls(tmp_path: Path, golden: Callable[[str], None]) -> None:
    async with connected(tmp_path) as (server, _):
        server.url = server.url.replace("http:", "https:")
        other = await connect(server.kubeconfig(tmp_path / "nobody"))
        golden(await failure(other.get(PATH)))
        await other.close()


async def test_the_image_has_no_client_for_kubeconfigs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "webhook.k8s.client.kubeconfig", raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)  # as if it were not installed
    with pytest.raises(InputError) as caught:
        await connect(str(tmp_path / "config"))
    assert "kubernetes-asyncio" in caught.value.what
    assert "pip" in caught.value.fix


async def test_the_cluster_by_the_names_that_admins_know(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, transport):
        assert transport.cluster == f'context "fake", {server.url}'
