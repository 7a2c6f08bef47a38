"""Other controllers that buy nodes or move VMs: Karpenter, cluster-autoscaler, and OpenShift's descheduler."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from webhook import names
from webhook.doctor.installation import Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, check, ok, readable, unreadable, warning
from webhook.k8s.resources import CONFIG_MAPS, NAMESPACES, NODES_WITH_IMAGES, PODS, Resource
from webhook.k8s.types.core import Node, Pod
from webhook.k8s.types.meta import Namespace, Object, View
from webhook.policies.eviction.settings import EvictionSettings
from webhook.text import pluralize

_KARPENTER: Final = "Karpenter"
_POLICY: Final = "PREFERENCE_POLICY"
# In this order, the later one prevails.
_IGNORE: Final = "Ignore"
_RESPECT: Final = "Respect"
_DESCHEDULER_NAMESPACE: Final = "openshift-kube-descheduler-operator"
_PLUGIN: Final = "KubevirtMigrationAware"
# It owns objects of other operators, and labels them (openshift-virtualization/virt-platform-autopilot, pkg/engine).
_AUTOPILOT: Final = "virt-platform-autopilot"
_MANAGED_BY: Final = "platform.kubevirt.io/managed-by"


class _EvictionLimits(View, frozen=True):
    total: int | None = None
    node: int | None = None


class _KubeDeschedulerSpec(View, frozen=True):
    mode: str | None = None
    eviction_limits: _EvictionLimits | None = None


class _KubeDescheduler(Object, frozen=True):
    spec: _KubeDeschedulerSpec | None = None


KUBE_DESCHEDULERS: Final = Resource(
    "operator.openshift.io", "v1", "kubedeschedulers", "KubeDescheduler", True, _KubeDescheduler
)


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
    if any(each.meta.name == _DESCHEDULER_NAMESPACE for each in namespaces):
        findings.append(await _check_descheduler(installation))
        findings += await _check_autopilot(installation, namespaces)
    what = "no pod or node of Karpenter and cluster-autoscaler, and no namespace of OpenShift's descheduler was found"
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


async def _check_descheduler(installation: Installation) -> Finding:
    """Whether a VM that has just moved is held by two cool-downs: the descheduler's plugin, and the eviction policy."""
    subject = f"ConfigMap {_DESCHEDULER_NAMESPACE}/cluster"
    policy = await installation.reader.get(CONFIG_MAPS, _DESCHEDULER_NAMESPACE, "cluster")
    if isinstance(policy, Unavailable):
        return unreadable(subject, policy)
    if policy is None:
        return ok("no-descheduler", subject, "does not exist: no KubeDescheduler is at work")
    has_plugin = _PLUGIN in ((policy.data or {}).get("policy.yaml") or "")
    seconds = installation.settings.of(EvictionSettings).cool_down_seconds
    if has_plugin and seconds:
        what = f"the plugin {_PLUGIN} holds VMs that have just moved, and so does eviction.coolDownSeconds ({seconds})"
        return warning("two-cool-downs", subject, what, "set eviction: {coolDownSeconds: 0} in the settings")
    if not has_plugin and not seconds:
        what = f"nothing holds VMs that have just moved: no plugin {_PLUGIN}, and eviction.coolDownSeconds is 0"
        todo = f"set eviction: {{coolDownSeconds: {EvictionSettings().cool_down_seconds}}} in the settings"
        return warning("no-cool-down", subject, what, todo)
    what = f"{'has' if has_plugin else 'does not have'} the plugin {_PLUGIN}; eviction.coolDownSeconds is {seconds}"
    return ok("cool-down", subject, what)


async def _check_autopilot(installation: Installation, namespaces: Sequence[Namespace]) -> list[Finding]:
    """Whether virt-platform-autopilot has switched the descheduler on, and what paces its evictions then."""
    subject = f"KubeDescheduler {_DESCHEDULER_NAMESPACE}/cluster"
    descheduler = await installation.reader.get(KUBE_DESCHEDULERS, _DESCHEDULER_NAMESPACE, "cluster")
    if isinstance(descheduler, Unavailable):
        return [unreadable(subject, descheduler)]
    if descheduler is None or descheduler.meta.label(_MANAGED_BY) != _AUTOPILOT:
        return []
    spec = descheduler.spec or _KubeDeschedulerSpec()
    limits = spec.eviction_limits or _EvictionLimits()
    what = f"{_AUTOPILOT} owns it: mode {spec.mode or 'not set'}"
    if limits.total is not None and limits.node is not None:
        what += f", at most {pluralize(limits.total, 'eviction')} in progress and {limits.node} from a node"
    is_evaluated = any(installation.mode(each, names.EVICTION) not in ("", names.OFF) for each in namespaces)
    if spec.mode != "Automatic" or is_evaluated:
        return [ok("autopilot", subject, what)]
    what += "; the policy eviction looks at no namespace, so a VM that is evicted and cannot move keeps such a place"
    label = names.policy_label(names.EVICTION)
    todo = f"label namespaces with {label}=audit, then enforce, or set eviction: {{clusterWide: true}} in the settings"
    return [warning("autopilot-unpaced", subject, what, todo)]
