"""On how many nodes can the scheduler's ImageLocality not see the launcher image?

A kubelet reports its 50 largest images (``nodeStatusMaxImages``); a node with more looks as if it lacked the rest.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.doctor.support.finding import Finding, pluralize, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import NODES
from webhook.errors import Unavailable

CHECK: Final = "nodes"
_MAX_IMAGES: Final = 50


async def check(installation: Installation) -> list[Finding]:
    """Count them."""
    nodes = await installation.reader.all(NODES)
    if isinstance(nodes, Unavailable):
        return [unreadable(CHECK, "images", nodes)]
    full = sum(len(node.status.images or ()) >= _MAX_IMAGES for node in nodes)
    what = f"{full} of {pluralize(len(nodes), 'node')} report {_MAX_IMAGES} images or more"
    if not full:
        return [Finding(CHECK, "images", "ok", what)]
    what += ", so that ImageLocality may take the launcher image for missing there"
    namespaces = await installation.namespaces()
    used = isinstance(namespaces, Unavailable) or any(
        installation.mode(one, names.SCHEDULING) == names.ENFORCE for one in namespaces
    )
    if used:
        return [Finding(CHECK, "images", "ok", f"{what}: what the scheduling policy is for")]
    label = names.policy_label(names.SCHEDULING)
    todo = f"opt namespaces in with {label}=enforce, or raise the kubelets' nodeStatusMaxImages"
    return [Finding(CHECK, "images", "warning", what, todo)]
