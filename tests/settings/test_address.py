from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.settings.syntax import is_address, is_host, is_loopback


@pytest.mark.parametrize("text", ["localhost", "a.b-c.example", "10.0.0.1", "::1", "fe80::1", "H", "a" * 63])
def test_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text", ["", "-a", "a_b", "10.0.0", "1.2.3.400", "[::1]", "::g", "a" * 64, "héllo", "a..b", "a b"]
)
def test_no_hosts(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize("text", ["localhost:0", "0.0.0.0:8443", "[::]:8443", "a.b:65535"])
def test_addresses(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text", ["", "a", ":8443", "a:", "a:65536", "::1:80", "[::1]", "[10.0.0.1]:80", "[a]:80", "a:-1"]
)
def test_no_addresses(text: str) -> None:
    assert not is_address(text)


@given(st.text(max_size=70))
def test_what_is_a_host_can_be_looked_up(text: str) -> None:
    if is_host(text):
        text.encode("idna")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:8090", "localhost:80"])
def test_what_only_this_host_reaches(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "127.0.0.1.example.com:1", "localhost.example:1", "", "::1"]
)
def test_what_others_reach(address: str) -> None:
    assert not is_loopback(address)
