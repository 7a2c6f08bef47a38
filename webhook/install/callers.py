"""The addresses from which the API server calls the webhooks, for the NetworkPolicy.

No selector of a NetworkPolicy matches the host network, in which API servers run, so the policy needs their addresses.
They differ between clusters: manifests cannot contain them, but `install` can read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

import msgspec

from webhook.errors import InputError, quote
from webhook.install.registration import Manifest, answered
from webhook.k8s.client.api import UNDECODABLE, Requests
from webhook.k8s.paths import object_path
from webhook.k8s.resources import NODES

AUTO: Final = "auto"
ANY: Final = "any"
_SECONDS: Final = 10.0
# The API servers of most managed clusters reach pods through agents that run in the cluster. Those of AKS and of
# OpenShift's hosted control planes have the label `app`, those of others `k8s-app`.
_IN_KUBE_SYSTEM: Final = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
_AGENTS: Final = tuple(
    {"namespaceSelector": _IN_KUBE_SYSTEM, "podSelector": selector}
    for selector in (
        {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["konnectivity-agent", "tunnelfront"]}]},
        {"matchLabels": {"app": "konnectivity-agent"}},
    )
)


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _Status(msgspec.Struct):
    addresses: list[_Address] | None = None


class _Endpoint(msgspec.Struct):
    addresses: list[str] = []


class _NodeOrSlice(msgspec.Struct):
    """A Node, which has a status, or an EndpointSlice, which has endpoints."""

    status: _Status | None = None
    endpoints: list[_Endpoint] | None = None


class _NodesOrSlices(msgspec.Struct):
    items: list[_NodeOrSlice] = []


def parse(text: str) -> list[str]:
    """The blocks of a list ``CIDR,CIDR``; an `InputError` where a part is neither an address nor a CIDR block."""
    blocks = []
    for part in text.split(","):
        try:
            blocks.append(str(ip_network(part.strip(), strict=False)))
        except ValueError:
            fix = "use auto, any, or CIDR blocks such as 10.0.0.0/28,10.0.1.7/32"
            raise InputError(f"{quote(part)} is not a valid CIDR block", "--callers", fix) from None
    return sorted(set(blocks))


async def discover_callers(api: Requests) -> list[str]:
    """The addresses of API servers: those behind the Service ``kubernetes``, and those of control plane nodes.

    Raises:
        InputError: the API server does not answer, or its objects contain no address.
    """
    path = object_path("discovery.k8s.io/v1", "endpointslices", "default")
    slices = await _list(api, path, "kubernetes.io/service-name=kubernetes")
    nodes = await _list(api, NODES.path(), "node-role.kubernetes.io/control-plane")
    addresses = [address for one in slices for endpoint in one.endpoints or () for address in endpoint.addresses]
    node_addresses = [one for node in nodes if node.status for one in node.status.addresses or ()]
    addresses += [one.address for one in node_addresses if one.type == "InternalIP"]
    if not addresses:
        what = "found no address of an API server in EndpointSlices and Nodes"
        raise InputError(what, "--callers auto", "use --callers CIDR,CIDR")
    return sorted({str(ip_network(ip_address(address))) for address in addresses})


def restrict_callers(policy: Manifest, blocks: Sequence[str]) -> Manifest:
    """A NetworkPolicy that permits only these addresses, and API servers' agents, to call the webhooks.

    It also permits them to read metrics, which `doctor` does through the API server.
    """
    peers: list[dict[str, Any]] = [*({"ipBlock": {"cidr": block}} for block in blocks), *_AGENTS]
    rules = []
    for rule in policy["spec"]["ingress"]:
        if _is_for_webhooks(rule):
            rules.append({**rule, "from": [*peers]})
        elif "from" in rule:
            rules.append({**rule, "from": [*rule["from"], *(peer for peer in peers if peer not in rule["from"])]})
        else:
            rules.append(rule)
    return {**policy, "spec": {**policy["spec"], "ingress": rules}}


def blocks_of(policy: Manifest | None) -> list[str]:
    """The CIDR blocks in a NetworkPolicy that `restrict_callers` made; empty if there are none."""
    rules = ((policy or {}).get("spec") or {}).get("ingress") or ()
    peers = [peer for rule in rules if _is_for_webhooks(rule) for peer in rule.get("from") or ()]
    return [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]


def _is_for_webhooks(rule: Manifest) -> bool:
    return any(one.get("port") == "webhooks" for one in rule.get("ports") or ())


async def _list(api: Requests, path: str, label: str) -> list[_NodeOrSlice]:
    listing = api.request("GET", path, {"labelSelector": label}, seconds=_SECONDS)
    status, body = await answered(listing, path, "run the command again once the API server answers")
    if status != 200:
        raise InputError(f"the API server answered status {status}", path, "use --callers CIDR,CIDR")
    try:
        return msgspec.json.decode(body, type=_NodesOrSlices).items
    except UNDECODABLE:
        raise InputError("the API server's answer cannot be decoded", path) from None
