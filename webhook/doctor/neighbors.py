"""Other controllers that buy nodes or move VMs: Karpenter, cluster-autoscaler, and deschedulers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.doctor.deschedulers import examine_deschedulers
from webhook.doctor.installation import Installation
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NAMESPACES, NODES_WITH_IMAGES, PODS
from webhook.k8s.types.core import Node, Pod
from webhook.text import pluralize

_KARPENTER: Final = "Karpenter"
_POLICY: Final = "PREFERENCE_POLICY"
# In this order, the later one prevails.
_IGNORE: Final = "Ignore"
_RESPECT: Final = "Respect"


@check("neighbors")
async def check_neighbors(installation: Installation) -> list[Finding]:
    """Look for them among nodes, pods and namespaces, and at what two of them would do to the same VMs."""
    nodes = readable("nodes", await installation.reader.all(NODES_WITH_IMAGES))
    pods = readable("pods", await installation.reader.all(PODS))
    namespaces = readable("namespaces", await installation.reader.all(NAMESPACES))
    spreads_by_host = not {"hostname", "both"}.isdisjoint(map(installation.spread, namespaces))
    findings = [*_check_karpenter(nodes, pods, spreads_by_host=spreads_by_host)]
    if any(_is_of(pod, "cluster-autoscaler") for pod in pods):
        what = "it adds nodes by the scheduler's filters alone, so a soft constraint buys none"
        what += "; VMs that are spread over all nodes leave none for it to remove"
        findings.append(ok("cluster-autoscaler", "cluster-autoscaler", what))
    deschedulers = [pod for pod in pods if _is_of(pod, "descheduler")]
    findings += await examine_deschedulers(installation, deschedulers, namespaces)
    what = "no pod or node of Karpenter and cluster-autoscaler, and no descheduler was found"
    return findings or [ok("none", "cluster", what)]


def _check_karpenter(nodes: Sequence[Node], pods: Sequence[Pod], *, spreads_by_host: bool) -> Iterator[Finding]:
    """Warn where it takes the soft constraint on hostnames for a requirement, and so buys a node for each VM."""
    bought = sum(node.meta.label("karpenter.sh/nodepool") is not None for node in nodes)
    controllers = [pod for pod in pods if _is_of(pod, "karpenter")]
    if not bought and not controllers:
        return
    # A tenant may give a pod such labels, too: one that does not ignore preferences is enough.
    shown = max(map(_preference_policy, controllers), default="not known (none of its pods is visible)")
    what = f"it has bought {bought}/{pluralize(len(nodes), 'node')}; its preference policy is {shown}"
    if not spreads_by_host or shown == _IGNORE:
        yield ok("karpenter", _KARPENTER, what)
        return
    what += ", and spread sets a soft constraint on hostnames, which it then treats as required: one node for each VM"
    todo = f"set {_POLICY}={_IGNORE} in Karpenter's Deployment, or scheduling.spread to off where it buys nodes"
    yield warning("hostname-buys-nodes", _KARPENTER, what, todo)


def _preference_policy(pod: Pod) -> str:
    """What Karpenter's arguments or environment set (pkg/operator/options), which takes no value but these two."""
    for container in pod.spec.containers or ():
        words = " ".join(container.args or ()).replace("=", " ").split()
        values = [value for option, value in itertools.pairwise(words) if option == "--preference-policy"]
        values += [variable.value or "" for variable in container.env or () if variable.name == _POLICY]
        if policies := [value for value in values if value in (_IGNORE, _RESPECT)]:
            return policies[0]
    return f"{_RESPECT}, its default"


def _is_of(pod: Pod, name: str) -> bool:
    """Whether a pod says that it is a controller's; clouds put their own name before it."""
    return any((pod.meta.label(key) or "").endswith(name) for key in ("app.kubernetes.io/name", "k8s-app", "app"))
