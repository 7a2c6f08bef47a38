"""What a server reads of its cluster whatever its policies are."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import NAMESPACES, NODES
from webhook.k8s.rights import Right
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.resources import KUBEVIRTS

RIGHTS: Final = (
    Right.on(
        NAMESPACES,
        verbs=("get", "list", "watch"),
        why="modes and parameters; get: a namespace that is a moment old",
    ),
    Right.on(NODES, verbs=("list", "watch"), why="which nodes there are, and what they offer"),
    Right.on(KUBEVIRTS, verbs=("list", "watch"), why="where KubeVirt runs, and how it is configured"),
    Right.on(
        DEFINITIONS,
        verbs=("get",),
        names=tuple(NAMES.values()),
        why="which fields the installed release of KubeVirt knows",
    ),
)
