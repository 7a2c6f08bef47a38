"""The settings file's section about the scheduler extender that scores image layers."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from webhook.errors import quote
from webhook.settings import layers_snapshot as snapshot
from webhook.settings.address import is_address, is_host, is_loopback
from webhook.settings.observability import Switch
from webhook.settings.section import Section
from webhook.settings.syntax import OptionalAddress, SchedulerName, mistake

_MAX_HOST: Final = 259


def _check_registry(text: str) -> str:
    is_valid = len(text) <= _MAX_HOST and (is_address(text) if ":" in text else is_host(text))
    if not is_valid or text != text.lower():
        fix = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
        raise mistake("syntax", f"{quote(text)} is not a valid registry", fix)
    return text


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        fix = "use for example 10.20.0.0/16, or one address"
        raise mistake("syntax", f"{quote(text)} is not a valid network", fix) from None
    return text


def _check_path(text: str) -> str:
    if text and not text.startswith("/"):
        raise mistake("syntax", f"{quote(text)} is not an absolute path", "use for example /var/cache/kubevirt-webhook")
    return text


RegistryName = Annotated[str, AfterValidator(_check_registry)]
NetworkText = Annotated[str, AfterValidator(_check_network)]
OptionalPath = Annotated[str, AfterValidator(_check_path)]


class RegistryModel(Section):
    """A registry that may be contacted."""

    ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of the registry's certificate. Empty: the CAs of the system."
    )
    plain_http: bool = Field(default=False, description="Contact the registry without TLS.")
    addresses: Annotated[tuple[NetworkText, ...], Field(strict=False)] = Field(
        default=(),
        description="Networks in which the registry may be. Public addresses are always allowed, except those of the "
        "cluster's own nodes and pods; all others only if they are listed here.",
        examples=["10.20.0.0/16"],
    )
    token_hosts: Annotated[tuple[RegistryName, ...], Field(strict=False)] = Field(
        default=(),
        description="Hosts of the registry's token server, if it is another host. They get the credentials of pull "
        "secrets.",
        examples=["auth.example.com"],
    )
    redirect_hosts: Annotated[tuple[RegistryName, ...], Field(strict=False)] = Field(
        default=(), description="Other hosts to which the registry may redirect. They get no credentials."
    )

    def snapshot(self) -> snapshot.RegistrySettings:
        """The section as the server reads it."""
        return snapshot.RegistrySettings(
            ca_file=self.ca_file,
            plain_http=self.plain_http,
            addresses=tuple(ipaddress.ip_network(text) for text in self.addresses),
            token_hosts=self.token_hosts,
            redirect_hosts=self.redirect_hosts,
        )


class LayersModel(Section):
    """The scheduler extender for image layers. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT for kube-scheduler. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS; "
        "on other addresses with TLS, to clients with a certificate of clientCaFile and clientNames.",
        examples=["127.0.0.1:8446"],
    )
    client_ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of kube-scheduler's client certificate."
    )
    client_names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Accepted common names of kube-scheduler's client certificate."
    )
    schedulers: Annotated[tuple[SchedulerName, ...], Field(strict=False)] = Field(
        default=("kubevirt",),
        description="Schedulers whose pods are scored; kube-scheduler calls its extenders for the pods of all its "
        "profiles.",
    )
    registries: dict[RegistryName, RegistryModel] = Field(
        default={},
        description="The registries, by name, from which manifests are read. No other registry is contacted. Docker "
        "Hub is docker.io.",
    )
    pull_secrets: Switch = Field(
        default="off",
        description="Read the pull secrets that pods name, to read manifests of private images. It requires permission "
        "to get these Secrets.",
    )
    cache_directory: OptionalPath = Field(
        default="",
        description="Existing directory in which manifests are kept, for example on an emptyDir volume. Empty: they "
        "are kept in memory only.",
    )
    cache_bytes: int = Field(
        default=67_108_864, ge=1_048_576, le=10_737_418_240, description="Maximum size of the directory in bytes."
    )

    @field_validator("client_names")
    @classmethod
    def _verifies_its_clients(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        listen, file = info.data.get("listen"), info.data.get("client_ca_file")
        if listen is None or file is None:
            return names
        if bool(file) != bool(names):
            given, missing = ("clientCaFile", "clientNames") if file else ("clientNames", "clientCaFile")
            raise mistake("counterpart-missing", f"layers.{given} requires layers.{missing}", "set both or neither")
        if listen and not is_loopback(listen) and not names:
            what = f"{listen} is not a loopback address, so clients must have a certificate"
            raise mistake("clients-unverified", what, "set layers.clientCaFile and layers.clientNames")
        return names

    def snapshot(self) -> snapshot.LayersSettings:
        """The section as the server reads it."""
        return snapshot.LayersSettings(
            listen=self.listen,
            schedulers=self.schedulers,
            client_ca_file=self.client_ca_file,
            client_names=self.client_names,
            registries={name: registry.snapshot() for name, registry in self.registries.items()},
            pull_secrets=self.pull_secrets == "on",
            cache_directory=self.cache_directory,
            cache_bytes=self.cache_bytes,
        )
