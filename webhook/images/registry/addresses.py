"""Which addresses the client may connect to: names are resolved first, and only addresses that passed are dialed.

A registry's name belongs to the owner of its DNS zone. Without this check it could point at the metadata service of the
cloud (169.254.169.254), at a daemon on this host, or at the API server.

What blocks here runs in threads of its own: names that resolve slowly, and a cache directory that hangs. Those of the
event loop read the settings and the API server's longer events, too, and there are six on two cores. A name server that
does not answer would take one after the other, since a thread outlives the request that gave it up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Collection, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from aiohttp.abc import AbstractResolver, ResolveResult

T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(max_workers=8, thread_name_prefix="registry")


async def in_thread(function: Callable[[], T]) -> T:
    """What a function returns that blocks."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# The only IPv6 addresses that the Internet routes to one host.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


class AddressDenied(OSError):  # noqa: N818 - a state of affairs, which aiohttp must take for a failed connection
    """A name that has only addresses to which the client must not connect."""


class OwnAddresses:
    """The cluster's own addresses as far as they are public: those of nodes, and of the pods on them."""

    def __init__(self) -> None:
        self._by_node: Final[dict[str, tuple[Network, ...]]] = {}

    def put(self, node: str, texts: Iterable[str]) -> None:
        """Add a node with its addresses and the ranges of its pods, or replace what is known of it.

        What is neither, for example a host name, is ignored.
        """
        networks = (_network(text) for text in texts)
        # The others are denied anyway.
        self._by_node[node] = tuple(each for each in networks if each and is_allowed(each[0], ()))
        if not self._by_node[node]:
            self.remove(node)

    def remove(self, node: str) -> None:
        """Remove a node."""
        self._by_node.pop(node, None)

    def __contains__(self, address: object) -> bool:
        return any(
            isinstance(address, Address) and address.version == network.version and address in network
            for networks in self._by_node.values()
            for network in networks
        )


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_allowed(address: Address, networks: Collection[Network], own: Container[object] = ()) -> bool:
    """Whether the client may connect to an address.

    It may to public unicast addresses that are not the cluster's own, and to those in networks that an admin allows.
    An IPv6 address that stands for an IPv4 address counts as that one.
    """
    target = _embedded(address)
    if any(target in network for network in networks if network.version == target.version):
        return True
    if isinstance(target, ipaddress.IPv6Address) and target not in _GLOBAL_UNICAST:
        return False
    return target.is_global and not target.is_multicast and not target.is_reserved and target not in own


def _embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def _address(text: str) -> Address | None:
    """The address in a text, whatever its zone; None where it is none."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def is_literal_denied(host: str, networks: Collection[Network], own: Container[object] = ()) -> bool:
    """Whether a host is an IP address to which the client must not connect; aiohttp resolves no addresses.

    It takes ``127.1`` and ``2130706433`` for addresses as well, as the C library does, so these are denied.
    """
    bare = host.strip("[]").partition("%")[0]
    if (address := _address(bare)) is None:
        return ":" in bare or bare.replace(".", "").isdigit()
    return not is_allowed(address, networks, own)


class CheckedResolver(AbstractResolver):
    """Resolves names to the addresses that the client may connect to.

    Args:
        networks: networks that are allowed though their addresses are not public, or the cluster's own.
        own: the cluster's own addresses.
    """

    def __init__(self, networks: Collection[Network], own: Container[object] = ()) -> None:
        self._networks: Final = networks
        self._own: Final = own

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of a host; an `AddressDenied` where it has only others, an `OSError` if it has none."""
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, family=family)
        candidates = [(str(each[4][0]), each[0], each[2]) for each in await in_thread(look_up)]
        results = [
            ResolveResult(hostname=host, host=text, port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST)
            for text, kind, proto in candidates
            if (address := _address(text)) and is_allowed(address, self._networks, self._own)
        ]
        if not results:
            raise AddressDenied(f"{host} has only addresses that are not public and not in its list of addresses")
        return results

    async def close(self) -> None:
        """Nothing is open."""
