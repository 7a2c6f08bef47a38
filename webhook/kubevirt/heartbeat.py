"""Whether virt-handler of a node is alive, by what it and virt-controller write into the node.

virt-handler writes the label and the annotation together, every one to two minutes (pkg/virt-handler/heartbeat). When
the annotation is older than five minutes, virt-controller sets the label to ``false`` (pkg/virt-controller/watch/node,
``isNodeUnresponsive``). Whether the kubelet is ready is another question: virt-handler does its work on a node that is
NotReady, as long as it reaches the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.k8s.types.meta import unix_time

# The label and the annotation of a node.
SCHEDULABLE: Final = "kubevirt.io/schedulable"
HEARTBEAT: Final = "kubevirt.io/heartbeat"
# virt-controller's heartBeatTimeout.
TIMEOUT_SECONDS: Final = 300


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """What a node says of its virt-handler.

    Attributes:
        is_withdrawn: the label is ``false``: virt-handler starts, has ended, or virt-controller waits for it in vain.
        last_seen: of a node whose label is ``false``, when virt-handler wrote last, in Unix seconds; None: never. Of
            other nodes it is not kept: it changes every minute, and decides nothing.
    """

    is_withdrawn: bool = False
    last_seen: float | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Heartbeat:
        """What the labels and annotations of a node say."""
        if labels.get(SCHEDULABLE) != "false":
            return ALIVE
        return cls(True, unix_time(annotations.get(HEARTBEAT)))

    def problem(self, now: float) -> str:
        """Why virt-handler neither sends nor receives a guest, a clause about it; empty: it is alive.

        Args:
            now: Unix time in seconds.
        """
        if not self.is_withdrawn:
            return ""
        label = f"the node's label {SCHEDULABLE} is false"
        if self.last_seen is None:
            return f"is gone ({label}, and it has no heartbeat)"
        age = now - self.last_seen
        if age <= TIMEOUT_SECONDS:
            return ""
        return f"is gone ({label}, and its last heartbeat was {int(age // 60)}m ago)"


ALIVE: Final = Heartbeat()
