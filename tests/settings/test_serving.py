"""Listeners and certificates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.settings.parsing import mistakes, snapshot


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "127.0.0.1:65535", "[::]:1", "[fe80::1]:80", "localhost:80", "a-b.Example.com:80"]
)
def test_addresses(address: str) -> None:
    assert snapshot({"server": {"listen": address}}).server.listen == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":80",
        "80",
        "host",
        "host:",
        "host:65536",
        "host:a",
        "::1:80",
        "[::1]",
        "[x]:80",
        "[]:80",
        "1.2.3:80",
        "1.2.3.256:80",
        "a b:80",
        "a_b:80",
        "host:80 ",
        "host:-1",
        "tcp://host:80",
        "host:123456",
        "-a:80",
        "host:٣",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    assert mistakes({"server": {"listen": address}}) == [("syntax", ("server", "listen"))]


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
