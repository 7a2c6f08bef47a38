"""Counts the nodes on which the scheduler's ImageLocality may not see the launcher image.

A kubelet reports its 50 largest images (``nodeStatusMaxImages``); a node with more looks as if it lacked the rest.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.doctor.support.finding import Finding, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.resources import NODES_WITH_IMAGES
from webhook.text import pluralize

CHECK: Final = "nodes"
_MAX_IMAGES: Final = 50


async def check(installation: Installation) -> list[Finding]:
    """Count the nodes that report as many images as a kubelet does at most."""
    nodes = await installation.reader.all(NODES_WITH_IMAGES)
    if isinstance(nodes, Unavailable):
        return [unreadable(CHECK, "images", nodes)]
    full = sum(len(node.images) >= _MAX_IMAGES for node in nodes)
    what = f"{full}/{pluralize(len(nodes), 'node')} report {_MAX_IMAGES} or more images"
    if not full:
        return [Finding(CHECK, "all-reported", "images", "ok", what)]
    what += ", so ImageLocality may score the launcher image as missing there"
    namespaces = await installation.namespaces()
    used = isinstance(namespaces, Unavailable) or any(
        installation.mode(namespace, names.SCHEDULING) == names.ENFORCE for namespace in namespaces
    )
    if used:
        return [Finding(CHECK, "policy-applies", "images", "ok", f"{what}; the scheduling policy avoids this")]
    label = names.policy_label(names.SCHEDULING)
    todo = f"label namespaces {label}=enforce, or raise nodeStatusMaxImages of the kubelets"
    return [Finding(CHECK, "not-all-reported", "images", "warning", what, todo)]
