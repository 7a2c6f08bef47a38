"""What a kube-scheduler of the cluster's version reads and writes, by the roles that its API server bootstraps for it.

Every minor version may read more kinds, and a scheduler that may not list one of them waits for it indefinitely: it
runs, places nothing and never takes its Lease. Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

# The second is bound to the user of the cluster's own scheduler too.
UPSTREAM_ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")
# What the component's account and its ClusterRole are called.
NAME: Final = "kubevirt-scheduler"
_READS: Final = ("list", "watch")
# What no kube-scheduler with a shipped configuration does, by group and resource, although the roles grant it. An empty
# tuple stands for all verbs. Objects are never read one by one: `get` is left out everywhere.
_UNUSED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    # The older name of pods/binding, and of replicasets.
    ("", "bindings"): (),
    ("extensions", "replicasets"): (),
    # Of its own namespace alone, where a Role grants them: its Lease, and that it leads.
    ("coordination.k8s.io", "leases"): (),
    ("", "events"): (),
    # The feature gate CoordinatedLeaderElection is off.
    ("coordination.k8s.io", "leasecandidates"): (),
    # It patches.
    ("", "pods/status"): ("update",),
    ("events.k8s.io", "events"): ("update",),
    # It updates.
    ("", "persistentvolumes"): ("patch",),
    ("", "persistentvolumeclaims"): ("patch",),
    ("resource.k8s.io", "resourceclaims"): ("patch",),
    # Of the resource claim controller.
    ("", "pods/finalizers"): (),
    # Nothing can be listed there: it is a subresource.
    ("resource.k8s.io", "resourceclaims/status"): _READS,
}


class Permission(NamedTuple):
    """A verb on a resource of a group, in all namespaces."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def granted(rules: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What the rules of a ClusterRole grant on every object of a resource, as plain JSON names it."""
    return {
        Permission(*each)
        for rule in rules
        if not rule.get("resourceNames")
        for each in product(*(rule.get(key) or () for key in ("apiGroups", "resources", "verbs")))
    }


def needed(rules: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What a kube-scheduler needs of the rules of ``UPSTREAM_ROLES``; a wildcard that an admin added is left out."""
    return {each for each in granted(rules) if "*" not in each and each.verb != "get" and not _is_unused(each)}


def _is_unused(permission: Permission) -> bool:
    verbs = _UNUSED.get((permission.group, permission.resource))
    return verbs is not None and (not verbs or permission.verb in verbs)


def missing_reads(upstream: Iterable[Mapping[str, Any]], own: Iterable[Mapping[str, Any]]) -> list[Permission]:
    """What the scheduler must list and watch before it places a pod, and may not; the Secrets of a cluster never count.

    Args:
        upstream: the rules of ``UPSTREAM_ROLES``, as the cluster has them.
        own: the rules of the second scheduler.
    """
    return sorted(
        each for each in needed(upstream) - granted(own) if each.verb in _READS and each.resource != "secrets"
    )


def as_rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """The rules that grant permissions, one for each resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for each in permissions:
        verbs.setdefault((each.group, each.resource), []).append(each.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": granted_verbs}
        for (group, resource), granted_verbs in verbs.items()
    ]
