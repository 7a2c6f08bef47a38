"""The check of the API server: what it can do since 1.37, and what it does by files."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.apiserver import EVICTION_REQUESTS, METRICS_PATH, check_api_server

GATES = ("APIServerWebhookAuthenticationToken", "EvictionRequestAPI", "ManifestBasedAdmissionControlConfig")
FILES = "apiserver_manifest_admission_config_controller_last_config_info"


def new(*enabled: str, files: tuple[str, ...] = (), status: int = 200, version: str = "v1.37.2") -> Change:
    """An API server with some of its feature gates on, and plugins that read files."""
    gates = [f'kubernetes_feature_enabled{{name="{gate}",stage="ALPHA"}} {int(gate in enabled)}' for gate in GATES]
    info = [f'{FILES}{{apiserver_id_hash="sha256:a",hash="sha256:b",plugin="{plugin}"}} 1' for plugin in files]
    text = "\n".join(("# TYPE kubernetes_feature_enabled gauge", *gates, *info, ""))

    def change(world: DoctorWorld) -> None:
        world.server.answer("/version", lambda _: web.json_response({"gitVersion": version}), times=9)
        world.server.answer(METRICS_PATH, lambda _: web.Response(text=text, status=status), times=9)

    return change


TOKENS, EVICTIONS = GATES[:2]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (new(), []),
        (new("ManifestBasedAdmissionControlConfig"), []),
        (new(*GATES, files=("MutatingAdmissionPolicy",), version="v1.36.9"), []),
        (new(TOKENS, version="v2.0.0"), ["ok API server: tokens-issued"]),
        (
            both(new(TOKENS), lambda world: world.set("tls", client_ca_file="/ca.crt", client_names=("apiserver",))),
            ["ok API server: certificate-required"],
        ),
        (
            new(files=("ValidatingAdmissionWebhook", "MutatingAdmissionPolicy")),
            ["unknown API server: configured-by-files"],
        ),
        (new(EVICTIONS), ["ok EvictionRequest: none-requested"]),
        (both(new(EVICTIONS), put(EVICTION_REQUESTS, "one", "demo")), ["warning EvictionRequest: requested"]),
        (both(new(EVICTIONS), forbid(EVICTION_REQUESTS)), ["unknown EvictionRequest: unreadable"]),
        (new(status=403), ["unknown API server: unreadable"]),
        (new(status=500), ["unknown API server: unreadable"]),
    ],
)
async def test_what_an_api_server_can_do(world: DoctorWorld, change: Change, found: list[str]) -> None:
    assert await world.told(check_api_server, change) == found
