"""Kubeconfig files, and the errors in them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.errors import InputError
from webhook.k8s.client.api import ApiConnectionError
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
            "text",
            "empty",
            "not YAML",
            "control character",
            "empty context",
            "no context",
            "another context",
            "no contexts",
            "no users",
            "no clusters",
            "clusters of text",
            "users of text",
            "no server",
            "CA not PEM",
            "CA not base64",
            "no CA file",
            "certificate not PEM",
            "no token file",
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
        with pytest.raises(InputError) as caught:
            await connect(str(file))
        golden(caught.value.what)

    async def test_that_is_not_there(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        with pytest.raises(InputError) as caught:
            await connect(str(tmp_path / "missing"))
        golden(caught.value.what)

    async def test_that_is_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            await connect(str(tmp_path))
        assert "Is a directory" in str(caught.value)

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
