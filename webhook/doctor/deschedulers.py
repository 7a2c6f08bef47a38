"""Deschedulers that evict VMs: OpenShift's, with virt-platform-autopilot, Deckhouse's, Harvester's, and any other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final

from webhook import names
from webhook.doctor.installation import Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, ok, unreadable, warning
from webhook.k8s.resources import CONFIG_MAPS, Resource
from webhook.k8s.types.core import Pod
from webhook.k8s.types.meta import Namespace, Object, View
from webhook.placement.machines import PLACED_VMIS
from webhook.placement.migrations import evacuated_node
from webhook.policies.eviction.settings import EvictionSettings
from webhook.text import abbreviate, pluralize

_OPENSHIFT: Final = "openshift-kube-descheduler-operator"
_PLUGIN: Final = "KubevirtMigrationAware"
# It owns objects of other operators, and labels them (openshift-virtualization/virt-platform-autopilot, pkg/engine).
_AUTOPILOT: Final = "virt-platform-autopilot"
_MANAGED_BY: Final = "platform.kubevirt.io/managed-by"
# deckhouse/deckhouse, modules/400-descheduler; deckhouse/virtualization, templates/namespace.yaml.
_DECKHOUSE: Final = "d8-descheduler"
_DECKHOUSE_VIRTUALIZATION: Final = "d8-virtualization"
# harvester/addons, pkg/templates/rancherd-22-addons.yaml.
_HARVESTER: Final = "harvester-system"
_HARVESTER_DESCHEDULER: Final = "kube-system"
# Without it, what KubeVirt answers to the eviction of a VM counts as a failure (pkg/descheduler/evictions).
_IN_BACKGROUND: Final = "EvictionsInBackground=true"
_INTERVAL: Final = "--descheduling-interval"
# Of a pod; a descheduler has one with its policy, and one with the cluster's CA. The pod may be a tenant's.
_MOST_CONFIG_MAPS: Final = 4
# As Go writes one.
_DURATION: Final = re.compile("[0-9.smh]{1,20}")
# A policy spares pods with emptyDir or hostPath volumes, as those of VMs are, unless it says one of these.
_EVICTS_LOCAL_STORAGE: Final = re.compile(r"evictLocalStoragePods:\s*true|PodsWithLocalStorage")
_LIMIT: Final = re.compile(r"\b(maxNoOfPodsToEvictPerNode|maxNoOfPodsToEvictTotal):\s*(\d{1,9})")
_LIMITED: Final = {"maxNoOfPodsToEvictPerNode": "from a node", "maxNoOfPodsToEvictTotal": "in all"}
# virt-api writes it into the VMIs that it marks for an eviction of the descheduler's.
_SOURCE: Final = "kubevirt.io/eviction-source"
_VMS: Final = "VMs"
_KEEPS_A_PLACE: Final = "so a VM that is evicted and cannot move keeps such a place"


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


async def examine_deschedulers(
    installation: Installation, pods: Sequence[Pod], namespaces: Sequence[Namespace]
) -> list[Finding]:
    """What each of them does to VMs beside the eviction policy, and the VMs that one of them has moving now.

    Args:
        installation: what is examined.
        pods: those of the cluster that say of themselves that they are a descheduler's.
        namespaces: all namespaces.
    """
    existing = {each.meta.name for each in namespaces}
    is_evaluated = any(installation.mode(each, names.EVICTION) not in ("", names.OFF) for each in namespaces)
    findings: list[Finding] = []
    if _DECKHOUSE_VIRTUALIZATION in existing:
        what = "its VMs are of API groups of its own (internal.virtualization.deckhouse.io): kubevirt-webhook sees none"
        what += " of them, and changes none"
        todo = "use kubevirt-webhook for VMs of the API group kubevirt.io, or uninstall it"
        findings.append(warning("deckhouse-virtualization", "Deckhouse Virtualization Platform", what, todo))
    if _OPENSHIFT in existing:
        findings.append(await _check_cool_down(installation))
        findings += await _check_autopilot(installation, is_evaluated=is_evaluated)
    # One of each namespace: replicas are alike, and a CronJob leaves several pods behind.
    others = {pod.meta.namespace or "": pod for pod in pods if pod.meta.namespace != _OPENSHIFT}
    if _DECKHOUSE_VIRTUALIZATION in existing:
        # It evicts those VMs alone.
        others.pop(_DECKHOUSE, None)
    for namespace, pod in sorted(others.items()):
        subject = f"descheduler in namespace {namespace}"
        if namespace == _DECKHOUSE:
            subject = f"Deckhouse's {subject}"
        elif namespace == _HARVESTER_DESCHEDULER and _HARVESTER in existing:
            subject = f"Harvester's {subject} (virtual-machine-auto-balance)"
        findings.append(await _check_descheduler(installation, pod, subject, is_evaluated=is_evaluated))
    if others or _OPENSHIFT in existing:
        findings += await _find_rounds_in_flight(installation)
    return findings


async def _check_descheduler(installation: Installation, pod: Pod, subject: str, *, is_evaluated: bool) -> Finding:
    """What its arguments and its policy, a ConfigMap of its pod, come to for VMs."""
    words = " ".join(word for container in pod.spec.containers or () for word in container.args or ())
    policy = ""
    mounted = (volume.config_map.name for volume in pod.spec.volumes or () if volume.config_map)
    for name in itertools.islice(dict.fromkeys(filter(None, mounted)), _MOST_CONFIG_MAPS):
        stored = await installation.reader.get(CONFIG_MAPS, pod.meta.namespace or "", name)
        if isinstance(stored, Unavailable):
            return unreadable(f"ConfigMap {pod.meta.namespace}/{name}", stored)
        policy += "\n".join(map(str, ((stored.data if stored else None) or {}).values()))
    pairs = itertools.pairwise(words.replace("=", " ").split())
    interval = next((value for option, value in pairs if option == _INTERVAL and _DURATION.fullmatch(value)), "")
    what = f"looks for pods to evict{f' every {interval}' if interval else ''}"
    if not policy:
        what += "; which ones is not known: no ConfigMap of its pod exists"
        return ok("descheduler-without-policy", subject, what)
    limits = [f"{number} {_LIMITED[limit]}" for limit, number in dict(_LIMIT.findall(policy)).items()]
    what += f", and evicts at most {' and '.join(limits)} in a round" if limits else ", without a limit"
    if not _EVICTS_LOCAL_STORAGE.search(policy):
        what += "; its policy spares pods with local volumes, as those of VMs are"
        return ok("descheduler-spares-vms", subject, what)
    if _IN_BACKGROUND not in words:
        what += "; without the feature gate EvictionsInBackground it takes KubeVirt's answer for a failure, and evicts"
        what += " one VM after the other, until all VMs of a busy node are marked"
        todo = f"add --feature-gates={_IN_BACKGROUND} to its arguments"
        if pod.meta.namespace == _DECKHOUSE:
            todo = "update Deckhouse to 1.76.13 or later, except 1.77.0: these have the feature gate"
        return warning("descheduler-not-in-background", subject, what, todo)
    if is_evaluated:
        return ok("descheduler", subject, f"{what}; the scheduler decides where each VM goes")
    follows = _KEEPS_A_PLACE if limits else "so VMs that no node can take are evicted, too, and stay marked"
    return _unpaced("descheduler-unpaced", subject, what, follows)


def _unpaced(code: str, subject: str, what: str, follows: str) -> Finding:
    what += f"; the policy eviction looks at no namespace, {follows}"
    label = names.policy_label(names.EVICTION)
    todo = f"label namespaces with {label}=audit, then enforce, or set eviction: {{clusterWide: true}} in the settings"
    return warning(code, subject, what, todo)


async def _find_rounds_in_flight(installation: Installation) -> list[Finding]:
    """The VMs that leave their nodes because a descheduler has evicted them."""
    vmis = await installation.reader.all(PLACED_VMIS)
    if isinstance(vmis, Unavailable):
        return [unreadable(_VMS, vmis)]
    moving = [vmi for vmi in vmis if evacuated_node(vmi) and vmi.meta.annotation(_SOURCE) == "descheduler"]
    if not moving:
        return []
    named = abbreviate([f"{vmi.meta.namespace}/{vmi.meta.name} ({vmi.node_name})" for vmi in moving])
    what = f"{pluralize(len(moving), 'VM')} being moved because a descheduler evicted them: {named}; each counts"
    what += " against its limits until it has left, and a plan of explain balance that is made now is overtaken by them"
    return [ok("round-in-flight", _VMS, what)]


async def _check_cool_down(installation: Installation) -> Finding:
    """Whether a VM that has just moved is held by two cool-downs: the descheduler's plugin, and the eviction policy."""
    subject = f"ConfigMap {_OPENSHIFT}/cluster"
    policy = await installation.reader.get(CONFIG_MAPS, _OPENSHIFT, "cluster")
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


async def _check_autopilot(installation: Installation, *, is_evaluated: bool) -> list[Finding]:
    """Whether virt-platform-autopilot has switched the descheduler on, and what paces its evictions then."""
    subject = f"KubeDescheduler {_OPENSHIFT}/cluster"
    descheduler = await installation.reader.get(KUBE_DESCHEDULERS, _OPENSHIFT, "cluster")
    if isinstance(descheduler, Unavailable):
        return [unreadable(subject, descheduler)]
    if descheduler is None or descheduler.meta.label(_MANAGED_BY) != _AUTOPILOT:
        return []
    spec = descheduler.spec or _KubeDeschedulerSpec()
    limits = spec.eviction_limits or _EvictionLimits()
    what = f"{_AUTOPILOT} owns it: mode {spec.mode or 'not set'}"
    if limits.total is not None and limits.node is not None:
        what += f", at most {pluralize(limits.total, 'eviction')} in progress and {limits.node} from a node"
    if spec.mode != "Automatic" or is_evaluated:
        return [ok("autopilot", subject, what)]
    return [_unpaced("autopilot-unpaced", subject, what, _KEEPS_A_PLACE)]
