"""The page of a server that is switched on, and what one without it does not import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from certs.source import Pair
from tests.cli.test_serve import EXAMPLES, FILES, Serving, example, pair, serving, tls  # noqa: F401 - a fixture
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


def test_nothing_is_imported_while_it_is_off() -> None:
    program = (
        "import sys, json\nfrom webhook.cli.main import main\nimport webhook.server.runtime.serve\n"
        "off = ('jinja2', 'markupsafe', 'webhook.server.page')\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(off)]))"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(said.stdout) == []


def test_without_an_api_server_only_on_a_loopback_address() -> None:
    from tests import builders

    options: Any = Options(cluster_from=Path("x"), page_listen="0.0.0.0:8091")
    with pytest.raises(InputError) as error:
        options.apply_to(builders.settings())
    assert error.value.where == "--page-listen"
    Options(cluster_from=Path("x"), page_listen="127.0.0.1:8091").apply_to(builders.settings())


def test_the_address_is_checked() -> None:
    with pytest.raises(InputError) as error:
        Options(page_listen="8091").check()
    assert error.value.where == "--page-listen"
