"""The section of the scheduler extender for image layers."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
import yaml

from webhook.errors import InputErrors
from webhook.settings.file import default_settings, parse
from webhook.settings.model import LayersSettings, RegistrySettings


def layers(**section: Any) -> LayersSettings:
    return parse(yaml.safe_dump({"layers": section}).encode(), "s.yaml").layers


def test_it_is_off_without_an_address() -> None:
    assert default_settings().layers == LayersSettings() == layers()


def test_everything_has_its_place() -> None:
    found = layers(
        listen="0.0.0.0:8446",
        clientCaFile="/ca.crt",
        clientNames=["system:kube-scheduler"],
        schedulers=["kubevirt", "batch"],
        registries={
            "quay.io": {},
            "registry.example:5000": {
                "caFile": "/registry.crt",
                "plainHttp": True,
                "addresses": ["10.0.0.0/8", "fd00::1"],
                "tokenHosts": ["auth.example"],
                "redirectHosts": ["cdn.example:444"],
            },
        },
        pullSecrets="on",
        cacheDirectory="/cache",
        cacheBytes=2_000_000,
    )
    registry = RegistrySettings(
        ca_file="/registry.crt",
        plain_http=True,
        addresses=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::1")),
        token_hosts=("auth.example",),
        redirect_hosts=("cdn.example:444",),
    )
    assert found == LayersSettings(
        listen="0.0.0.0:8446",
        client_ca_file="/ca.crt",
        client_names=("system:kube-scheduler",),
        schedulers=("kubevirt", "batch"),
        registries={"quay.io": RegistrySettings(), "registry.example:5000": registry},
        pull_secrets=True,
        cache_directory="/cache",
        cache_bytes=2_000_000,
    )


@pytest.mark.parametrize(
    ("section", "where"),
    [
        # A client that may reach the listener must have a certificate.
        ({"listen": "0.0.0.0:8446"}, "layers.clientNames"),
        ({"listen": "127.0.0.1:8446", "clientCaFile": "/ca.crt"}, "layers.clientNames"),
        ({"listen": "127.0.0.1:8446", "clientNames": ["x"]}, "layers.clientNames"),
        ({"listen": "0.0.0.0:8443", "clientCaFile": "/ca.crt", "clientNames": ["x"]}, "layers.listen"),
        ({"listen": "x"}, "layers.listen"),
        ({"registries": {"quay.io/team": {}}}, "layers.registries"),
        ({"registries": {"https://quay.io": {}}}, "layers.registries"),
        ({"registries": {"Quay.io": {}}}, "layers.registries"),
        ({"registries": {"quay.io": {"addresses": ["10.0.0.1/8"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"addresses": ["everywhere"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"tokenHosts": ["https://auth.example/token"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"caFile": "relative"}}}, "layers.registries"),
        ({"cacheDirectory": "relative"}, "layers.cacheDirectory"),
        ({"cacheBytes": 1}, "layers.cacheBytes"),
        ({"schedulers": ["Not A Name"]}, "layers.schedulers"),
        ({"pullSecrets": "maybe"}, "layers.pullSecrets"),
        ({"registry": {}}, "layers.registry"),
    ],
)
def test_mistakes_are_named(section: dict[str, Any], where: str) -> None:
    with pytest.raises(InputErrors) as caught:
        layers(**section)
    (mistake,) = caught.value.mistakes
    assert mistake.what.startswith(where)


def test_on_loopback_no_certificate_is_needed() -> None:
    assert layers(listen="127.0.0.1:8446").listen == "127.0.0.1:8446"
