"""The objects of the chart for an assignment of its knobs, made by kustomize and by what `install` uses."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from os.path import relpath
from pathlib import Path
from typing import Any, Final

from hack.chart import facts
from hack.chart.tree import MORE, ChartEntries, ChartValue, Override
from webhook.install.callers import restrict_callers
from webhook.install.plan import DIGEST_ANNOTATION, in_namespace, with_layers, with_ports
from webhook.install.registration import Manifest, configurations
from webhook.k8s.yaml_documents import parse_documents, read_documents
from webhook.settings.model import LayersSettings
from webhook.settings_file import parse

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "manifests"
NAME: Final = "kubevirt-webhook"
# The knobs of objects, beside those of the webhook configurations.
KNOBS: Final = (
    *("openshift", "certManager", "autoscaling", "monitoring", "dashboard", "networkPolicy", "callers"),
    *("podDisruptionBudget", "fidelity", "events", "drift", "policyReports", "preemption", "headroom", "admin"),
    *("metrics", "layers", "kubevirtPlugin"),
)
# The component of each knob that adds permissions.
_PERMISSIONS: Final = {
    **{name: name for name in ("fidelity", "events", "drift", "preemption", "headroom", "admin")},
    "policyReports": "policyreports",
}
# Of kinds that a knob adds or removes.
_KINDS: Final = {
    "monitoring": ("ServiceMonitor", "PrometheusRule"),
    "networkPolicy": ("NetworkPolicy",),
    "podDisruptionBudget": ("PodDisruptionBudget",),
}
_BLOCK: Final = "192.0.2.0/32"
_PORTS: Final = {"admin": 64001, "layers": 64003}
_LAYERS: Final = LayersSettings(listen="0.0.0.0:64003", client_ca_file="/ca.crt", client_names=("x",))
_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class ChartSource:
    """Makes objects.

    Args:
        kubectl: the program.
    """

    def __init__(self, kubectl: Path) -> None:
        self._kubectl: Final = kubectl
        self._built = cache(self._kustomize)

    def titles(self) -> list[tuple[str, str]]:
        """Kind and name of all objects but the Namespace, which Helm needs before it installs anything."""
        found = [
            _title(one)
            for overlay in (dict.fromkeys(KNOBS, False), dict.fromkeys(KNOBS, True))
            for one in self._all({**overlay, "networkPolicy": True, "podDisruptionBudget": True})
        ]
        return [title for title in dict.fromkeys(found) if title[0] != "Namespace"]

    def make(self, title: tuple[str, str], knobs: Mapping[str, bool]) -> Manifest | None:
        """An object, with the places where the chart's values go; None if these knobs make none."""
        for one in self._all(knobs, title):
            return _open(in_namespace(one, facts.RELEASE_NAMESPACE))
        return None

    def _all(self, knobs: Mapping[str, bool], only: tuple[str, str] | None = None) -> Iterator[Manifest]:
        """The objects that these knobs make, or the one of a kind and name."""
        overlay = "openshift" if knobs["openshift"] else "kubernetes"
        components = ["monitoring", "dashboard"]
        components += ["autoscaling"] if knobs["autoscaling"] else []
        components += ["kubevirt-plugin"] if knobs["kubevirtPlugin"] else []
        if knobs["metrics"]:
            components.append("metrics-monitoring-cert-manager" if knobs["certManager"] else "metrics-monitoring")
        components += ["cert-manager"] if knobs["certManager"] else []
        ports = {name: port for name, port in _PORTS.items() if knobs[name]}
        without = {kind for knob, kinds in _KINDS.items() if not knobs[knob] for kind in kinds}
        for one in self._built(overlay, tuple(components)):
            if only and _title(one) != only:
                continue
            is_dashboard = one["metadata"]["name"] == f"{NAME}-dashboard"
            if one["kind"] in without or (is_dashboard and not knobs["dashboard"]):
                continue
            made = with_ports(deepcopy(one), ports)
            if made["kind"] == "Deployment" and knobs["layers"]:
                made = with_layers(made, _LAYERS)
            if made["kind"] == "NetworkPolicy" and knobs["callers"]:
                made = restrict_callers(made, [_BLOCK])
            yield made
        for knob, component in _PERMISSIONS.items():
            if knobs[knob]:
                yield from (one for one in _permissions(component) if only is None or _title(one) == only)

    def _kustomize(self, overlay: str, components: tuple[str, ...]) -> list[Manifest]:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name).resolve()
            content = {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [relpath(MANIFESTS / "overlays" / overlay, directory)],
                "components": [relpath(MANIFESTS / "components" / one, directory) for one in components],
            }
            (directory / "kustomization.yaml").write_text(json.dumps(content))
            made = subprocess.run(
                [str(self._kubectl), "kustomize", name], check=True, capture_output=True, text=True
            ).stdout
        return [one.value for one in parse_documents(made, overlay)]


def _title(one: Manifest) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


@cache
def _permissions(component: str) -> list[Manifest]:
    return [one.value for one in read_documents(MANIFESTS / "components" / component / "rbac.yaml")]


@cache
def _configurations_for(settings: str) -> list[Manifest]:
    return configurations(parse(settings.encode(), "settings"))


def entries(kind: str, name: str, knobs: Mapping[str, bool]) -> list[Manifest]:
    """The webhooks of a configuration, with the places where the settings' lists and numbers go."""
    made = _configurations_for(json.dumps(facts.settings_of(knobs)))
    (found,) = (one for one in made if _title(one) == (kind, name))
    result: list[Manifest] = deepcopy(found["webhooks"])
    for entry in result:
        entry["timeoutSeconds"] = ChartValue("$facts.timeoutSeconds")
        expressions = entry["namespaceSelector"]["matchExpressions"]
        expressions[1]["values"] = [ChartEntries("$facts.excludedNamespaces")]
        expressions.append(ChartEntries("$facts.namespaceSelector"))
    return result


def _open(one: Manifest) -> Manifest:
    """An object with the places where the chart's values go."""
    result = deepcopy(one)
    result["metadata"].setdefault("labels", {})[MORE] = ChartEntries("$.Values.commonLabels")
    if result["kind"] in _CONFIGURATIONS:
        result.pop("webhooks")
        return result
    change = _CHANGES.get(result["kind"])
    if change:
        change(result)
    return _with_values(result)  # type: ignore[no-any-return]


def _with_values(value: Any) -> Any:
    """A tree in which the ports that stand in for the settings' are computed."""
    if isinstance(value, dict):
        return {key: _with_values(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_values(one) for one in value]
    for name, port in _PORTS.items():
        if type(value) is int and value == port:
            return ChartValue(f"$facts.{name}Port")
    return value


def _deployment(one: Manifest) -> None:
    spec = one["spec"]
    if "replicas" in spec:
        spec["replicas"] = ChartValue("$.Values.replicas")
    template = spec["template"]
    template["metadata"]["labels"][MORE] = ChartEntries("merge (dict) $.Values.podLabels $.Values.commonLabels")
    template["metadata"]["annotations"][DIGEST_ANNOTATION] = ChartValue(
        'include "kubevirt-webhook.settings" $ | sha256sum | trunc 16 | quote'
    )
    template["metadata"]["annotations"][MORE] = ChartEntries("$.Values.podAnnotations")
    pod = template["spec"]
    pod["terminationGracePeriodSeconds"] = ChartValue("max 30 (add 20 (int $facts.shutdownSeconds))")
    for field in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        pod[field] = Override(f"$.Values.{field}")
    pod["topologySpreadConstraints"] = Override("$.Values.topologySpreadConstraints", pod["topologySpreadConstraints"])
    (container,) = pod["containers"]
    container["image"] = ChartValue('include "kubevirt-webhook.image" $ | quote')
    container["imagePullPolicy"] = ChartValue("$.Values.image.pullPolicy")
    container["resources"] = Override("$.Values.resources", container["resources"])


def _config_map(one: Manifest) -> None:
    if one["metadata"]["name"] == NAME:
        one["data"] = {"settings.yaml": ChartValue('include "kubevirt-webhook.settings" $ | quote')}
    else:
        one["data"] = {"kubevirt-webhook.json": ChartValue('$.Files.Get "files/kubevirt-webhook.json" | quote')}
        one["metadata"]["labels"][MORE] = ChartEntries("merge (dict) $.Values.dashboard.labels $.Values.commonLabels")


def _budget(one: Manifest) -> None:
    one["spec"]["maxUnavailable"] = ChartValue("$.Values.podDisruptionBudget.maxUnavailable")


def _autoscaler(one: Manifest) -> None:
    spec = one["spec"]
    spec["minReplicas"] = ChartValue("$.Values.autoscaling.minReplicas")
    spec["maxReplicas"] = ChartValue("$.Values.autoscaling.maxReplicas")
    spec["metrics"][0]["resource"]["target"]["averageValue"] = ChartValue("$.Values.autoscaling.averageCpu")


def _monitoring(one: Manifest) -> None:
    one["metadata"]["labels"][MORE] = ChartEntries("merge (dict) $.Values.monitoring.labels $.Values.commonLabels")
    for endpoint in one["spec"].get("endpoints", ()):
        endpoint["interval"] = ChartValue("$.Values.monitoring.interval")


def _network_policy(one: Manifest) -> None:
    for rule in one["spec"]["ingress"]:
        peers = rule.get("from", [])
        if {"ipBlock": {"cidr": _BLOCK}} in peers:
            peers.remove({"ipBlock": {"cidr": _BLOCK}})
            peers.append(ChartEntries("$facts.callerBlocks"))


_CHANGES: Final = {
    "Deployment": _deployment,
    "ConfigMap": _config_map,
    "PodDisruptionBudget": _budget,
    "HorizontalPodAutoscaler": _autoscaler,
    "ServiceMonitor": _monitoring,
    "PrometheusRule": _monitoring,
    "NetworkPolicy": _network_policy,
}
