"""Which CPU model all nodes have in common, and which running VMs cannot migrate because of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook import names
from webhook.doctor.installation import Installation
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NODES_WITH_IMAGES
from webhook.kubevirt.config import AMD64
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.machines import HOST_MODEL, LAUNCHER_PODS, PLACED_VMIS, LauncherPod, Vmi
from webhook.placement.nodes import (
    ARCHITECTURE,
    CPU_FEATURE,
    CPU_MODEL,
    CPU_VENDOR,
    HOST_MODEL_CPU,
    TRUE,
    Node,
    labels_starting_with,
)
from webhook.placement.target_pods import inherited_cpu
from webhook.policies.defaults.settings import ANNOTATIONS, DefaultsSettings
from webhook.text import abbreviate, pluralize

_VMS: Final = "VMs"
_HOST_PASSTHROUGH: Final = "host-passthrough"
_LAUNCHERS: Final = {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}
_ANNOTATION: Final = ANNOTATIONS["cpu_model"]
# What KubeVirt writes as the reason of the condition LiveMigratable (VirtualMachineInstanceReasonCPUModeNotMigratable).
_BY_KUBEVIRT: Final = "CPUModeLiveMigratable"
# QEMU's models by their age (libvirt, src/cpu_map): whatever a model is called beyond that is a variant of it.
_GENERATIONS: Final = (
    *("486", "pentium", "coreduo", "n270", "qemu", "kvm", "core2duo", "Conroe", "Penryn", "phenom"),
    *("Opteron_G1", "Opteron_G2", "Opteron_G3", "Nehalem", "Westmere", "Opteron_G4", "SandyBridge", "Opteron_G5"),
    *("IvyBridge", "Haswell", "Broadwell", "Skylake-Client", "Skylake-Server", "EPYC", "Dhyana"),
    *("Cascadelake-Server", "EPYC-Rome", "Cooperlake", "Icelake-Server", "EPYC-Milan", "SapphireRapids"),
    *("EPYC-Genoa", "SierraForest", "GraniteRapids", "ClearwaterForest", "EPYC-Turin"),
)


@check("cpu-models")
async def check_cpu_models(installation: Installation) -> list[Finding]:
    """Compare the CPU models of nodes that take VMs, and those of the VMs that run."""
    reader = installation.reader
    listed = map(Node.of, readable("nodes", await reader.all(NODES_WITH_IMAGES)))
    # KubeVirt has named models for this architecture alone.
    nodes = [node for node in listed if node.labels.get(SCHEDULABLE) == TRUE and _is_amd64(node)]
    if not nodes:
        return [ok("no-nodes", "nodes", f"no node of architecture {AMD64} takes VMs")]
    if not any(map(_models, nodes)):
        return [ok("no-labels", "nodes", "no node that takes VMs has a label with a CPU model")]
    common = _common_models(nodes)
    best = newest(common)
    default = installation.settings.of(DefaultsSettings).cpu_model
    findings = list(_of_nodes(nodes, common, best, default))
    vmis = readable(_VMS, await reader.all(PLACED_VMIS))
    running = [vmi for vmi in vmis if vmi.node_name and not vmi.has_ended]
    if running and len(nodes) > 1:
        pods = readable("pods", await reader.all(LAUNCHER_PODS, query=_LAUNCHERS))
        findings += _of_vms(running, pods, nodes, best, default)
    return findings


def _is_amd64(node: Node) -> bool:
    return node.labels.get(ARCHITECTURE, AMD64) == AMD64


def _models(node: Node) -> frozenset[str]:
    """The named models that a node supports."""
    return frozenset(
        key.removeprefix(CPU_MODEL) for key, value in node.labels.items() if key.startswith(CPU_MODEL) and value == TRUE
    )


def _common_models(nodes: Sequence[Node]) -> frozenset[str]:
    return frozenset.intersection(*map(_models, nodes))


def newest(models: Iterable[str]) -> str:
    """The newest of some models whose age is known, of its variants the last by name; empty: none is known."""
    aged = [(age, model) for model in models if (age := _age(model)) >= 0]
    return max(aged, default=(0, ""))[1]


def _age(model: str) -> int:
    """The place in `_GENERATIONS`; -1: it is not there. A longer name counts before one that it begins with."""
    matches = [name for name in _GENERATIONS if model == name or model.startswith((f"{name}-", f"{name}3", f"{name}6"))]
    return _GENERATIONS.index(max(matches, key=len)) if matches else -1


def _of_nodes(nodes: Sequence[Node], common: frozenset[str], best: str, default: str) -> Iterator[Finding]:
    count, take = pluralize(len(nodes), "node"), "takes" if len(nodes) == 1 else "take"
    if common:
        named = f"; the newest of them is {best}" if best else ""
        models = pluralize(len(common), "CPU model")
        yield ok("common-model", "nodes", f"{models} common to {count} that {take} VMs{named}")
    else:
        groups: dict[str, list[Node]] = {}
        for node in nodes:
            vendors = labels_starting_with(node.labels, CPU_VENDOR, "")
            groups.setdefault(", ".join(sorted(vendors)) or "without a vendor", []).append(node)
        parts = []
        for vendor, own in sorted(groups.items()):
            model = newest(_common_models(own))
            have = f"all with {model}" if model else "with none in common"
            parts.append(f"{vendor}: {pluralize(len(own), 'node')}, {have}")
        listed = "; ".join(parts)
        what = f"no CPU model is common to {count} that {take} VMs ({listed}), so each VM can move among some only"
        todo = f"give namespaces whose VMs stay among some nodes a default by the annotation {_ANNOTATION}"
        yield warning("no-common-model", "nodes", what, todo)
    if default and default not in common and default not in (HOST_MODEL, _HOST_PASSTHROUGH):
        having = sum(default in _models(node) for node in nodes)
        what = f"the default CPU model {default} is on {having} of {count} that {take} VMs"
        todo = f"set defaults: {{cpuModel: {best}}} in the settings" if best else "name a model that more nodes have"
        yield warning("default-model-not-common", "settings", what, todo)


class _Stranded(NamedTuple):
    """VMs that cannot migrate for one reason, and what they are said to have."""

    vmis: list[Vmi]
    models: Counter[str]


def _of_vms(
    running: Sequence[Vmi], pods: Iterable[LauncherPod], nodes: Sequence[Node], best: str, default: str
) -> Iterator[Finding]:
    """VMs with no other node for their CPU, by why."""
    by_name = {node.name: node for node in nodes}
    owners = ((pod, pod.meta.controller_owner()) for pod in pods if not pod.is_over)
    present = {(owner.uid, pod.node_name): pod for pod, owner in owners if owner}
    capable: dict[frozenset[tuple[str, str]], frozenset[str]] = {}
    found = {
        code: _Stranded([], Counter()) for code in ("by-kubevirt", "host-model", "named-model", "host-passthrough")
    }
    hosts = {frozenset(labels_starting_with(node.labels, HOST_MODEL_CPU, "")) for node in nodes}
    for vmi in running:
        node, model = by_name.get(vmi.node_name), vmi.cpu.model or ""
        if node is None:
            continue
        condition = vmi.condition("LiveMigratable")
        if condition and condition.status == "False" and condition.reason == _BY_KUBEVIRT:
            _note(found["by-kubevirt"], vmi, model)
        elif model == _HOST_PASSTHROUGH:
            if len(hosts) > 1:
                _note(found["host-passthrough"], vmi, model)
        elif required := _required(vmi, model, present.get((vmi.meta.uid, vmi.node_name)), node):
            key = frozenset(required.items())
            if key not in capable:
                capable[key] = frozenset(each.name for each in nodes if key <= each.labels.items())
            if not capable[key] - {node.name}:
                kind = "host-model" if model == HOST_MODEL else "named-model"
                _note(
                    found[kind],
                    vmi,
                    " ".join(labels_starting_with(node.labels, HOST_MODEL_CPU, "")) if kind == "host-model" else model,
                )
    advice = _advice(best, default)
    for code, what in (
        ("by-kubevirt", "KubeVirt does not migrate {count} for the CPU model"),
        (
            "host-model",
            "{count} with host-model cannot migrate: no other node has the CPU that they took over from their host",
        ),
        ("named-model", "{count} cannot migrate: no other node has their CPU model and the features that they require"),
        (
            "host-passthrough",
            "{count} with host-passthrough migrate to nodes with another CPU, too, where the guest may fail",
        ),
    ):
        stranded = found[code]
        if stranded.vmis:
            clause = what.format(count=pluralize(len(stranded.vmis), "VM"))
            models = abbreviate([f"{model} ({number})" for model, number in sorted(stranded.models.items()) if model])
            models = f"; by model: {models}" if models and code in ("host-model", "named-model") else ""
            yield warning(code, _VMS, f"{clause}: {_named(stranded.vmis)}{models}", advice)
    if not any(each.vmis for each in found.values()):
        yield ok("all-migrate", _VMS, f"the CPU keeps none of {pluralize(len(running), 'VM')} from another node")


def _note(stranded: _Stranded, vmi: Vmi, model: str) -> None:
    stranded.vmis.append(vmi)
    stranded.models[model] += 1


def _required(vmi: Vmi, model: str, pod: LauncherPod | None, node: Node) -> dict[str, str]:
    """The labels of nodes that a VM's CPU requires; none where nothing is known of them."""
    if model in ("", HOST_MODEL):
        return dict(inherited_cpu(vmi, pod.node_selector if pod else {}, node.labels))
    features: Mapping[str, str] = {CPU_FEATURE + name: TRUE for name in vmi.cpu.features_with("", "require")}
    return {CPU_MODEL + model: TRUE, **features}


def _advice(best: str, default: str) -> str:
    if not best:
        return f"give them a CPU model that several nodes have, by the annotation {_ANNOTATION}, and restart them"
    if best == default:
        return f"restart them: where the defaults policy is enforced they get {best}, unless their owners chose a model"
    setting = (
        f"set defaults: {{cpuModel: {best}}} in the settings, or annotate their namespaces with {_ANNOTATION}={best}"
    )
    return f"{setting}; they get it at their next start where their owners chose none"


def _named(vmis: Sequence[Vmi]) -> str:
    return abbreviate(sorted(f"{vmi.meta.namespace}/{vmi.meta.name} ({vmi.node_name})" for vmi in vmis))
