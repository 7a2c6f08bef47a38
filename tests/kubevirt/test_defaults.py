"""What the recorded answers do not show of KubeVirt's defaults (tests/vectors)."""

from __future__ import annotations

import pytest

from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.types.core import VMI_SPEC


def filled(spec: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    decoded = decode(VMI_SPEC, spec)
    defaults.spec_defaults(decoded, configuration)
    return encode(VMI_SPEC, decoded)


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"defaultNetworkInterface": "slirp"}, "slirp interface is deprecated as of v1.3"),
        ({"permitBridgeInterfaceOnPodNetwork": False}, "bridge interface is not enabled in kubevirt-config"),
    ],
)
def test_forbidden_interfaces(network: Json, text: str) -> None:
    with pytest.raises(Rejection, match=text):
        filled({}, ClusterConfig.of({"network": network}))
