"""Which proxy the environment names for a URL, read as Go reads it, and so as kubectl and every operator does.

The rules are those of ``golang.org/x/net/http/httpproxy``. The standard library's differ where clusters need them:
``NO_PROXY=172.30.0.0/16`` says nothing to it, and it sends requests for localhost through the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from webhook.errors import InputError

PROXY_FIX: Final = "use an HTTP proxy, for example http://192.0.2.1:3128 or https://proxy.example:3128"
_PORTS: Final = {"http": "80", "https": "443"}
_V4_PREFIX_BITS: Final = 96

_Address: TypeAlias = IPv4Address | IPv6Address


class _Target(NamedTuple):
    """Where a request goes: the host in lower case, its port, and its address, if the host is one."""

    host: str
    port: str
    address: _Address | None


def is_http_url(url: str) -> bool:
    """Whether a text is the URL of an HTTP server, as proxies and API servers are."""
    try:
        parts = urlsplit(url)
        # An invalid port is a ValueError once it is read.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def goes_through_proxy(host: str, port: str, environment: Mapping[str, str]) -> bool:
    """Whether a program in Go sends HTTPS requests to a host and port through a proxy of its environment."""
    return bool(_variable(environment, "HTTPS_PROXY")) and _uses_proxy(host, port, _variable(environment, "NO_PROXY"))


def proxy_of_environment(url: str, environment: Mapping[str, str]) -> str:
    """The URL of the proxy for requests to a URL; empty for none.

    Args:
        url: of the API server.
        environment: the variables ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, or the same in lower case.

    Raises:
        InputError: requests can't be sent through the proxy, or its variable isn't to be trusted.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), _host(parts.netloc), str(parts.port or "")
    except ValueError:
        # No request is sent to such a URL, and the error of that names the reason.
        return ""
    name = {"https": "HTTPS_PROXY", "http": "HTTP_PROXY"}.get(scheme, "")
    proxy = _variable(environment, name) if name else ""
    if not proxy:
        return ""
    if name == "HTTP_PROXY" and environment.get("REQUEST_METHOD"):
        # The variable may come from a client's header "Proxy" (https://golang.org/s/cgihttpproxy).
        raise InputError("the proxy is not used in a CGI environment", _where(name), "unset REQUEST_METHOD")
    if not _uses_proxy(_ascii(host), port or _PORTS[scheme], _variable(environment, "NO_PROXY")):
        return ""
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_http_url(proxy):
        # Not the value, which may hold a password.
        raise InputError("the proxy is not supported", _where(name), PROXY_FIX)
    return proxy


def _where(name: str) -> str:
    return f"the environment variable {name}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _host(netloc: str) -> str:
    """The host as it is written: `urllib` would make it lower case, and Go compares ``localhost`` with this."""
    place = netloc.rpartition("@")[2]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def _uses_proxy(host: str, port: str, no_proxy: str) -> bool:
    """Whether a request to a host and port goes through a proxy (``useProxy`` of httpproxy)."""
    if host == "localhost":
        return False
    address = _address(host)
    if address is not None and address.is_loopback:
        return False
    target = _Target(host.strip().lower(), port, address)
    return not any(matches(target) for matches in _exceptions(no_proxy))


def _exceptions(no_proxy: str) -> list[Callable[[_Target], bool]]:
    """The entries of ``NO_PROXY``, each as the question whether a target is meant by it."""
    entries = [text for part in no_proxy.split(",") if (text := part.strip().lower())]
    if "*" in entries:
        return [lambda _: True]
    return [exception for entry in entries if (exception := _exception(entry))]


def _exception(entry: str) -> Callable[[_Target], bool] | None:
    if (network := _network(entry)) is not None:
        return lambda target: target.address is not None and target.address in network
    split = _split_port(entry)
    host, port = split or (entry, "")
    if not host:
        return None
    if "%" not in host and (address := _address(host)) is not None:
        return lambda target: target.address == address and port in ("", target.port)
    suffix = host[1:] if host.startswith("*.") else host
    is_suffix_alone = suffix.startswith(".")
    suffix = f".{_ascii(suffix.removeprefix('.'))}"

    def matches(target: _Target) -> bool:
        is_host = target.host.endswith(suffix) or (not is_suffix_alone and target.host == suffix[1:])
        return target.address is None and is_host and port in ("", target.port)

    return matches


def _address(text: str) -> _Address | None:
    """An IP address; an IPv4 address that is written as one of IPv6 is that IPv4 address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    # A zone says by which link an address is reached, and is no part of it.
    return address.ipv4_mapped or IPv6Address(int(address))


def _network(text: str) -> IPv4Network | IPv6Network | None:
    """A network in CIDR notation; bits of a host in it say nothing."""
    address, slash, prefix = text.partition("/")
    if not slash or not (prefix.isascii() and prefix.isdigit()) or "%" in address:
        return None
    try:
        network = ip_network(f"{address}/{int(prefix)}", strict=False)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and network.prefixlen >= _V4_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        return IPv4Network((mapped, network.prefixlen - _V4_PREFIX_BITS)) if mapped else network
    return network


def _split_port(text: str) -> tuple[str, str] | None:
    """Host and port of ``HOST:PORT`` or ``[HOST]:PORT``, as ``net.SplitHostPort``; None for another form."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return None
    if text.startswith("["):
        if not host.endswith("]"):
            return None
        host = host[1:-1]
    elif ":" in host:
        return None
    return None if set("[]") & {*host, *port} else (host, port)


def _ascii(host: str) -> str:
    """A host as DNS has it: an internationalized name in Punycode, any other as it is."""
    if host.isascii():
        return host
    import idna  # noqa: PLC0415 - few hosts have such a name, and its tables are large

    try:
        return idna.encode(host, uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError):
        return host
