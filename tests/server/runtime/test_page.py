"""The page of a server that is switched on."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from certs.pem import Pair
from tests import builders
from tests.cli.runner import EXAMPLES
from tests.cli.test_serve import FILES, Serving, example, pair, serving, tls  # noqa: F401 - a fixture
from tests.waiting import PATIENCE
from webhook.errors import InputError
from webhook.server.runtime.options import Options

SETTINGS = ["--config", str(EXAMPLES / "settings.yaml")]


def got(server: Serving, path: str = "") -> str:
    (url,) = (event["address"] for event in server.said if event["event"] == "serving the page")
    with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def test_the_page_shows_what_the_server_did(tmp_path: Path, pair: Pair) -> None:  # noqa: F811
    with serving(*FILES, *SETTINGS, *tls(tmp_path), "--page-listen", "127.0.0.1:0", pair=pair) as server:
        server.post(example("01-launcher-pod.yaml"))
        decisions, decision = got(server, "/decisions"), got(server, "/decisions/1")
        health = got(server, "/health")
        placement = got(server, "/placement?namespace=shop&name=web")
    (line,) = server.audit  # type: ignore[attr-defined]
    assert line["reasons"][0]["code"] in decisions
    assert all(".".join(change["path"]) in decision for change in line["changes"])
    assert line["uid"] in decision
    assert re.findall(r"<bdi>(batch|kubevirt|serving)</bdi>", health) == ["kubevirt", "batch", "serving"]
    assert "node-3" in placement


def test_the_settings_switch_it_on(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("page: {listen: '127.0.0.1:0'}\n")
    with serving(*FILES, "--config", str(config)) as server:
        assert "<h1>" in got(server)


def test_its_address_is_checked_and_without_an_api_server_a_loopback_one() -> None:
    exposed = Options(cluster_from=Path("x"), page_listen="0.0.0.0:8091")
    for refused in (lambda: exposed.apply_to(builders.settings()), Options(page_listen="8091").check):
        with pytest.raises(InputError) as error:
            refused()
        assert error.value.where == "--page-listen"
    Options(cluster_from=Path("x"), page_listen="127.0.0.1:8091").apply_to(builders.settings())
