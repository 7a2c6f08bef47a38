"""The addresses from which API servers call, and the NetworkPolicy that is made of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.golden_files import Golden
from tests.install.memory import MANIFESTS, InstallMemory
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.callers import blocks_of, discover_callers, parse, restrict_callers
from webhook.install.plan import Overlay
from webhook.k8s.types.selectors import LabelSelector

OVERLAYS: tuple[Overlay, ...] = ("kubernetes", "openshift")


def answers(slices: Any, nodes: Any) -> InstallMemory:
    api = InstallMemory()
    api.answers = {("GET", "/endpointslices"): slices, ("GET", "/nodes"): nodes}
    return api


def node(**addresses: str) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": name, "address": address} for name, address in addresses.items()]}}


async def test_api_servers_and_control_plane_nodes_are_found() -> None:
    slices = {"items": [{"endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}]}, {"endpoints": None}]}
    first = node(InternalIP="10.0.0.1", ExternalIP="203.0.113.9", Hostname="cp1")
    nodes = {"items": [first, node(InternalIP="fd00::1"), {}, {"status": {}}]}
    assert await discover_callers(answers((200, slices), (200, nodes))) == ["10.0.0.1/32", "10.0.0.2/32", "fd00::1/128"]


@pytest.mark.parametrize(
    ("slices", "nodes"),
    [((200, {"items": []}), (200, {"items": []})), ((403, {}), (200, {})), (None, (200, {})), ((200, b"["), (200, {}))],
    ids=["none", "forbidden", "no answer", "malformed"],
)
async def test_what_can_not_be_found_out_gets_a_sentence(slices: Any, nodes: Any, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        await discover_callers(answers(slices, nodes))
    golden(str(caught.value))


def test_blocks_are_parsed(golden: Golden) -> None:
    assert parse("10.0.1.7, 10.0.0.5/28,fd00::/64") == ["10.0.0.0/28", "10.0.1.7/32", "fd00::/64"]
    for given in ("", "10.0.0.0/33", "everybody", "10.0.0.1,"):
        with pytest.raises(InputError) as caught:
            parse(given)
        assert caught.value.where == "--callers"
        golden(str(caught.value))


def _is_in_kube_system(peer: dict[str, Any]) -> bool:
    return bool(peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}})


# GKE's labels, those of AKS today and before, and those of OpenShift's hosted control planes.
AGENTS: list[dict[str, str]] = [
    {"k8s-app": "konnectivity-agent"},
    {"app": "konnectivity-agent"},
    {"k8s-app": "tunnelfront"},
]


@pytest.mark.parametrize("port", ["webhooks", "ops"])
@pytest.mark.parametrize("labels", AGENTS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_agents_of_managed_control_planes_call_and_let_doctor_read_metrics(
    overlay: Overlay, labels: dict[str, str], port: str
) -> None:
    made = restrict_callers(plan.network_policy(MANIFESTS, overlay), ["10.0.0.1/32"])
    (peers,) = (rule["from"] for rule in made["spec"]["ingress"] if rule["ports"][0]["port"] == port)
    agents = [peer["podSelector"] for peer in peers if "podSelector" in peer and _is_in_kube_system(peer)]
    assert any(msgspec.convert(agent, LabelSelector).matches(labels) for agent in agents)


@pytest.mark.parametrize("port", ["webhooks", "ops"])
def test_agents_of_hosted_openshift_need_no_callers(port: str) -> None:
    rules = plan.network_policy(MANIFESTS, "openshift")["spec"]["ingress"]
    (peers,) = (rule["from"] for rule in rules if rule["ports"][0]["port"] == port)
    assert {"matchLabels": {"app": "konnectivity-agent"}} in [peer.get("podSelector") for peer in peers]


@pytest.mark.control("strangers-send-reviews", "invented-objects")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_narrowed_policy_lets_the_api_server_alone_call(overlay: Overlay) -> None:
    policy, block = plan.network_policy(MANIFESTS, overlay), {"cidr": "10.0.0.1/32"}
    made = restrict_callers(policy, ["10.0.0.1/32"])
    rules = {rule["ports"][0]["port"]: rule for rule in made["spec"]["ingress"]}

    assert [peer["ipBlock"] for peer in rules["webhooks"]["from"] if "ipBlock" in peer] == [block]
    assert all(_is_in_kube_system(peer) for peer in rules["webhooks"]["from"] if peer != {"ipBlock": block})
    assert {"ipBlock": block} in rules["ops"]["from"], "for doctor"
    assert made["spec"]["egress"] == policy["spec"]["egress"]
    assert (blocks_of(made), blocks_of(policy), blocks_of(None)) == (["10.0.0.1/32"], [], [])
    # Explanations stay open to bearers of tokens.
    rule = {"ports": [{"port": 8090, "protocol": "TCP"}]}
    assert restrict_callers({"spec": {"ingress": [rule]}}, ["10.0.0.1/32"])["spec"]["ingress"] == [rule]


@pytest.mark.control("strangers-send-reviews")
def test_no_rule_of_openshift_lets_everybody_in() -> None:
    assert all(rule["from"] for rule in plan.network_policy(MANIFESTS, "openshift")["spec"]["ingress"])


@pytest.mark.control("metrics-reveal-names")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_metrics_are_not_for_everybody(overlay: Overlay) -> None:
    rules = plan.network_policy(MANIFESTS, overlay)["spec"]["ingress"]
    (peers,) = (rule["from"] for rule in rules if rule["ports"][0]["port"] == "ops")
    assert peers
    assert all("namespaceSelector" in peer for peer in peers)
