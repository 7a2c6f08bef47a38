"""The proxy of a URL is the one that Go takes, in each of the environments that Go was asked about."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from webhook.errors import InputError
from webhook.k8s.client.proxies import proxy_of_environment

# Written by hack/proxies/main.go, with http.ProxyFromEnvironment.
FILE = Path(__file__).parents[2] / "data" / "proxies.jsonl.gz"
CASES: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]


def answer(url: str, environment: dict[str, str]) -> str:
    try:
        proxy = proxy_of_environment(url, environment)
    except InputError:
        return "error"
    # Go writes a scheme in lower case.
    return urlsplit(proxy).geturl() if proxy else ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["environment"], ensure_ascii=True))
def test_as_go_reads_the_environment(case: dict[str, Any]) -> None:
    assert {url: answer(url, case["environment"]) for url in case["answers"]} == case["answers"]


def test_the_cases_are_of_every_kind() -> None:
    told = [answer for case in CASES for answer in case["answers"].values()]
    assert len(CASES) > 200
    assert min(told.count(""), len(told) - told.count("")) > 2000
    assert "error" in told


@pytest.mark.parametrize(
    "proxy", ["socks5://ann:secret@localhost:1080", "http://[", "localhost:port", "http://", "http://proxy:0"]
)
def test_a_proxy_that_is_not_spoken_is_named_without_its_password(proxy: str) -> None:
    with pytest.raises(InputError) as caught:
        proxy_of_environment("https://api.example", {"https_proxy": proxy})
    assert (caught.value.where, "secret" in str(caught.value)) == ("the environment variable HTTPS_PROXY", False)
    assert proxy_of_environment("https://api.example", {"https_proxy": proxy, "NO_PROXY": "api.example"}) == ""


def test_a_url_that_is_none_has_no_proxy() -> None:
    assert proxy_of_environment("https://[", {"HTTPS_PROXY": "http://proxy"}) == ""
