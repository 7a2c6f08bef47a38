"""The settings of the layer score as the server reads them: plain, frozen, already checked."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RegistrySettings(msgspec.Struct, frozen=True):
    """A registry that may be contacted.

    Attributes:
        ca_file: PEM file of the CAs that sign its certificate; empty: those of the system.
        plain_http: it is reached without TLS.
        addresses: networks that it may be in although their addresses are not public, or the cluster's own.
        token_hosts: ``HOST`` or ``HOST:PORT`` of token servers, beside the registry itself, that get credentials.
        redirect_hosts: ``HOST`` or ``HOST:PORT`` to which it may redirect; these get no credentials.
    """

    ca_file: str = ""
    plain_http: bool = False
    addresses: tuple[Network, ...] = ()
    token_hosts: tuple[str, ...] = ()
    redirect_hosts: tuple[str, ...] = ()


class LayersSettings(msgspec.Struct, frozen=True):
    """The scheduler extender that scores nodes by the image layers that they already have.

    Attributes:
        listen: ``HOST:PORT`` (plain HTTP on a loopback address, else TLS with client certificates); empty: off.
        schedulers: pods of these schedulers are scored.
        client_ca_file: PEM file of the CAs of kube-scheduler's client certificate.
        client_names: common names of kube-scheduler's client certificate.
        registries: by name; no other is contacted.
        pull_secrets: read the pull secrets that pods name.
        cache_directory: directory for manifests; empty: memory only.
        cache_bytes: size of the directory at most.
    """

    listen: str = ""
    schedulers: tuple[str, ...] = ("kubevirt",)
    client_ca_file: str = ""
    client_names: tuple[str, ...] = ()
    registries: Mapping[str, RegistrySettings] = MappingProxyType({})
    pull_secrets: bool = False
    cache_directory: str = ""
    cache_bytes: int = 67_108_864


OFF: Final = LayersSettings()
