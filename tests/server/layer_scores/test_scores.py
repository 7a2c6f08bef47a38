"""The extender of a running server, put together, and its absence."""

from __future__ import annotations

import asyncio
import ssl
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
import trustme
from aiohttp import TCPConnector
from aiohttp.test_utils import TestClient
from prometheus_client import generate_latest
from pytest_aiohttp import AiohttpClient

from certs.authority import check_client_authorities
from certs.source import pair_of
from tests import builders
from tests.builders import changed
from tests.certs.memory import KeptObject
from tests.cluster.fake_apiserver import ApiServers
from tests.server.conftest import CountedServer, GuardedServer
from tests.server.handles import server_handle
from tests.server.layer_scores.test_extender import body
from tests.server.runtime.test_certificates import settings
from webhook.errors import InputError
from webhook.k8s.client.identity import Kubeconfig
from webhook.server.layer_scores.part import LAYER_SCORES
from webhook.server.layer_scores.scores import LayerScores, open_layer_scores
from webhook.server.ops import MetricsState
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.connections import connected
from webhook.settings.model import LayersSettings, RegistrySettings

LOOPBACK = LayersSettings(listen="127.0.0.1:0", registries={"quay.io": RegistrySettings()})


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificates(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    (tmp_path / "crt").write_bytes(leaf.cert_chain_pems[0].bytes())
    (tmp_path / "key").write_bytes(leaf.private_key_pem.bytes())
    return Certificates(settings(tmp_path).tls, "localhost", KeptObject())


async def test_files_have_no_nodes_to_score() -> None:
    assert not LAYER_SCORES.is_on(server_handle(builders.settings()))
    offered = server_handle(changed(builders.settings(), layers=LOOPBACK))
    assert LAYER_SCORES.is_on(offered)
    with pytest.raises(InputError):
        async with LAYER_SCORES.running(offered):
            pass


@pytest.mark.parametrize(
    "settings",
    [
        LayersSettings(listen="127.0.0.1:0", cache_directory="/nowhere"),
        LayersSettings(listen="127.0.0.1:0", registries={"quay.io": RegistrySettings(ca_file="/nowhere")}),
        LayersSettings(listen="127.0.0.1:0", registries={"quay.io": RegistrySettings(ca_file="/dev/null")}),
    ],
)
async def test_what_cannot_be_used_is_named(settings: LayersSettings) -> None:
    with pytest.raises(InputError) as caught:
        async with open_layer_scores(AsyncMock(), settings):
            pass
    assert caught.value.where.startswith("layers.")


def scraped(scores: LayerScores) -> str:
    return generate_latest(cast("Any", MetricsState(scores.metrics()))).decode()


async def test_pull_secrets_that_cannot_be_read_are_counted(apiservers: ApiServers, tmp_path: Path) -> None:
    count = "kubevirt_webhook_layers_pull_secret_failures_total"
    reading = changed(LOOPBACK, pull_secrets=True)
    server = await apiservers.start()
    kubeconfig = Kubeconfig(server.kubeconfig(tmp_path / "config"))
    async with open_layer_scores(partial(connected, kubeconfig), reading) as scores:
        assert scores.secrets
        assert f"{count} 0.0" in scraped(scores)
        await scores.secrets.keyring("shop", ("pull", "other"))
        assert f"{count} 2.0" in scraped(scores)


async def test_it_listens_and_has_metrics(certificates: Certificates, aiohttp_client: AiohttpClient) -> None:
    async with open_layer_scores(AsyncMock(), LOOPBACK) as scores:
        assert scores.secrets is None
        served = GuardedServer(scores.listening(LOOPBACK, certificates, CountedServer()))
        client: TestClient[Any, Any] = await aiohttp_client(served)
        async with client.post("/prioritize", data=body()) as response:
            assert await response.json() == []
        shown = scraped(scores)
        assert 'kubevirt_webhook_layers_requests_total{result="no-scores"} 1.0' in shown
        assert 'kubevirt_webhook_layers_images{layers="unknown"} 0.0' in shown
        assert "kubevirt_webhook_layers_queue_length 0.0" in shown
        assert "build_info" not in shown


@pytest.mark.control("strangers-ask-for-scores")
async def test_clients_need_a_certificate_of_the_right_name(
    tmp_path: Path, certificates: Certificates, authority: trustme.CA, aiohttp_client: AiohttpClient
) -> None:
    clients = trustme.CA()
    (tmp_path / "clients").write_bytes(clients.cert_pem.bytes())
    guarded = LayersSettings(
        listen="127.0.0.1:0", client_ca_file=str(tmp_path / "clients"), client_names=("system:kube-scheduler",)
    )
    async with open_layer_scores(AsyncMock(), guarded) as scores:
        served = GuardedServer(scores.listening(guarded, certificates, CountedServer()))

        async def status(name: str) -> int:
            tls = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
            if name:
                clients.issue_cert(common_name=name).configure_cert(tls)
            client: TestClient[Any, Any] = await aiohttp_client(served, connector=TCPConnector(ssl=tls))
            async with client.post("/prioritize", data=body()) as response:
                return response.status

        assert [await status(name) for name in ("system:kube-scheduler", "mallory", "")] == [200, 403, 403]
        assert served.make_url("").scheme == "https"


async def test_the_listener_follows_the_serving_certificate(
    tmp_path: Path, certificates: Certificates, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clients").write_bytes(authority.cert_pem.bytes())
    # Reviews are served by now.
    runs, check = threading.Event(), check_client_authorities
    monkeypatch.setattr(
        "webhook.server.runtime.certificates.check_client_authorities",
        lambda *given: check(*given) if runs.wait(5) else pytest.fail("the loop waits for the check"),
    )
    asyncio.get_running_loop().call_soon(runs.set)
    listener = await certificates.listener_for(tmp_path / "clients", "layers.clientCaFile")
    (other,) = certificates._others
    assert other.listener is listener
    leaf = authority.issue_cert("localhost")
    before = other._parts[0]
    certificates._use(pair_of(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()))
    assert other._parts[0] != before


async def test_a_client_ca_that_is_none_is_named(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "clients").write_text("no PEM")
    with pytest.raises(InputError) as caught:
        await certificates.listener_for(tmp_path / "clients", "layers.clientCaFile")
    assert caught.value.where == "layers.clientCaFile"
