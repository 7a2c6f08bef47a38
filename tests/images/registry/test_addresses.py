"""The addresses to which the client may connect."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import PATIENCE
from webhook.images.registry import addresses
from webhook.images.registry.addresses import CheckedResolver, OwnAddresses, is_allowed, is_literal_denied

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
DENIED = [
    *("169.254.169.254", "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.96.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fd00:ec2::254", "ff02::1"),
    *("::ffff:169.254.169.254", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe"),
    *("2002:a9fe:a9fe::1", "2002:7f00:1::"),
]


@pytest.mark.control("request-forgery-by-a-registry")
@pytest.mark.parametrize(("text", "public"), [*((text, True) for text in PUBLIC), *((text, False) for text in DENIED)])
def test_public_addresses_alone_are_allowed(text: str, public: bool) -> None:
    assert is_allowed(ipaddress.ip_address(text), ()) is public
    assert is_literal_denied(text, ()) is not public


def test_the_list_says_otherwise() -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]
    found = ["10.96.0.1", "::ffff:10.96.0.1", "fd00::1", "169.254.169.254"]
    assert [is_allowed(ipaddress.ip_address(each), networks) for each in found] == [True, True, True, False]
    assert not is_literal_denied("[fd00::1]", networks)
    assert not is_literal_denied("registry.example", ())


@given(st.ip_addresses())
def test_what_is_not_global_is_never_allowed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if not address.is_global or address.is_link_local or address.is_loopback or address.is_multicast:
        embedded = isinstance(address, ipaddress.IPv6Address) and (
            address.ipv4_mapped or address.sixtofour or address.teredo
        )
        assert embedded or not is_allowed(address, ())


@pytest.mark.control("request-forgery-by-a-registry")
def test_the_clusters_own_public_addresses_are_denied() -> None:
    own = OwnAddresses()
    eight = ipaddress.ip_address("8.8.8.8")
    own.put("a", ["8.8.4.4", "8.8.8.0/24", "10.0.0.1", "a.example", "junk/99"])
    denied = {each for each in ("8.8.8.8", "8.8.4.4", "8.8.5.5") if not is_allowed(ipaddress.ip_address(each), (), own)}
    assert denied == {"8.8.8.8", "8.8.4.4"}
    assert is_allowed(eight, [ipaddress.ip_network("8.8.8.8")], own)
    own.put("a", [])
    assert is_allowed(eight, (), own)
    own.put("a", ["8.8.8.8"])
    own.remove("a")
    own.remove("b")
    assert eight not in own, "a node that goes takes its addresses along"


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET6 if ":" in each else socket.AF_INET, each) for each in addresses]
    answers = [(family, socket.SOCK_STREAM, 6, "", (each, 443)) for family, each in found]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)


class TestResolver:
    @pytest.mark.control("silent-registries")
    async def test_names_that_take_long_hold_up_nothing_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The threads of the event loop read the settings and long events of the API server, too."""
        answers = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait() and [])
        resolver = CheckedResolver(())
        lookups = [asyncio.ensure_future(resolver.resolve("registry.example", 443)) for _ in range(100)]
        try:
            await asyncio.sleep(0)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "read"), PATIENCE) == "read"
        finally:
            answers.set()
            ends = {type(each) for each in await asyncio.gather(*lookups, return_exceptions=True)}
            assert ends == {addresses.AddressDenied}

    @pytest.mark.control("request-forgery-by-a-registry")
    async def test_only_addresses_that_passed_are_dialed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolving(monkeypatch, "169.254.169.254", "8.8.8.8", "fe80::1%eth0")
        found = await CheckedResolver(()).resolve("registry.example", 443)
        (only,) = [(each["host"], each["hostname"], each["port"]) for each in found]
        assert only == ("8.8.8.8", "registry.example", 443)

    async def test_a_name_with_other_addresses_alone_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolving(monkeypatch, "169.254.169.254", "127.0.0.1")
        resolver = CheckedResolver(())
        with pytest.raises(addresses.AddressDenied):
            await resolver.resolve("registry.example", 443)
        await resolver.close()
