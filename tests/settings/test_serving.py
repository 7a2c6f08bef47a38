"""Listeners and certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.settings.parsing import mistakes, snapshot
from webhook.settings.model import is_address, is_host, is_loopback

HOSTS = ["localhost", "a.b-c.example", "10.0.0.1", "::1", "fe80::1", "H", "a" * 63]
NO_HOSTS = ["", "-a", "a_b", "10.0.0", "1.2.3.400", "[::1]", "::g", "a" * 64, "héllo", "a..b", "a b"]
ADDRESSES = ["localhost:0", "0.0.0.0:8443", "[::]:8443", "a.b:65535", "[fe80::1]:80", "a-b.Example.com:80"]
NO_ADDRESSES = ["", "a", "80", ":8443", "a:", "a:65536", "a:a", "::1:80", "[::1]", "[10.0.0.1]:80", "[a]:80", "[]:80"]
NO_ADDRESSES += [
    "a:-1",
    "1.2.3:80",
    "1.2.3.256:80",
    "a b:80",
    "a_b:80",
    "a:80 ",
    "tcp://a:80",
    "a:123456",
    "a:٣",
    "-a:80",
]
LOOPBACK = ["127.0.0.1:0", "[::1]:8090", "localhost:80"]
NO_LOOPBACK = ["0.0.0.0:1", "[::]:1", "127.0.0.1.example.com:1", "localhost.example:1", "", "::1"]


@pytest.mark.parametrize(
    ("predicate", "text", "is_true"),
    [
        (predicate, text, texts is good)
        for predicate, good, bad in (
            (is_host, HOSTS, NO_HOSTS),
            (is_address, ADDRESSES, NO_ADDRESSES),
            (is_loopback, LOOPBACK, NO_LOOPBACK),
        )
        for texts in (good, bad)
        for text in texts
    ],
)
def test_hosts_and_addresses(predicate: Callable[[str], bool], text: str, is_true: bool) -> None:
    assert predicate(text) is is_true


@given(st.text(max_size=70))
def test_what_is_a_host_can_be_looked_up(text: str) -> None:
    if is_host(text):
        text.encode("idna")


def test_addresses_are_checked() -> None:
    assert snapshot({"server": {"listen": "[::]:1"}}).server.listen == "[::]:1"
    assert mistakes({"server": {"listen": ""}}) == [("syntax", ("server", "listen"))]


@pytest.mark.parametrize("taken", ["0.0.0.0:8443", "0.0.0.0:8080"])
def test_explanations_have_a_listener_of_their_own(taken: str) -> None:
    assert mistakes({"explain": {"listen": taken}}) == [("address-in-use", ("explain",))]
    assert mistakes({"explain": {"listen": "nonsense"}}) == [("syntax", ("explain", "listen"))]
    anywhere = {"listen": "a:0"}
    assert snapshot({"server": anywhere, "explain": anywhere}).explain.listen == "a:0"


def test_the_listeners_differ() -> None:
    assert mistakes({"server": {"listen": "a:1", "opsListen": "a:1"}}) == [("address-in-use", ("server", "opsListen"))]
    assert snapshot({"server": {"listen": "a:0", "opsListen": "a:0"}}).server.ops_listen == "a:0"


@pytest.mark.parametrize("given", ["certFile", "keyFile"])
def test_a_certificate_has_a_key(given: str) -> None:
    ((code, _),) = mistakes({"tls": {given: "x"}})

    assert code == "counterpart-missing"


FILES = {"certFile": "c", "keyFile": "k"}


@pytest.mark.parametrize(
    ("tls", "mode"),
    [
        ({}, "self-signed"),
        ({"mode": None}, "self-signed"),
        ({"mode": "managed"}, "managed"),
        (FILES, "mounted"),
        ({**FILES, "mode": None}, "mounted"),
        ({**FILES, "mode": "mounted"}, "mounted"),
    ],
)
def test_where_the_certificate_comes_from(tls: dict[str, Any], mode: str) -> None:
    assert snapshot({"tls": tls}).tls.mode == mode


@pytest.mark.parametrize(
    ("tls", "code", "key"),
    [
        ({"mode": "mounted"}, "mode-and-files", "mode"),
        ({**FILES, "mode": "managed"}, "mode-and-files", "mode"),
        ({**FILES, "mode": "self-signed"}, "mode-and-files", "mode"),
        ({"caExpirationSeconds": 604_800}, "too-short", "caExpirationSeconds"),
        ({"clientCaFile": "x"}, "counterpart-missing", "client_names"),
        ({"clientNames": ["x"]}, "counterpart-missing", "clientNames"),
        ({"secretName": "A"}, "syntax", "secretName"),
    ],
)
def test_certificates_that_make_no_sense(tls: dict[str, Any], code: str, key: str) -> None:
    assert mistakes({"tls": tls}) == [(code, ("tls", key))]
