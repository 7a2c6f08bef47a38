"""What the chart's templates find out about the values, in Go templates, and the settings that make it so.

Each knob of a webhook configuration has an expression over the chart's values, and the fragments of a settings file
under which it is true and false. The defaults in the expressions are those of the settings' model. A setting on which
an entry depends, other than by these, needs a knob, or a word that stands in for it: without one the chart keeps the
default. Tests render the chart with every setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.policies.registry import BY_NAME
from webhook.settings_file import effective

# Stand in for what only the chart's user knows, in objects that are made from settings.
RELEASE_NAMESPACE: Final = "namespace-of-the-release"
NAMESPACE: Final = "kubevirt-namespace-of-the-user"
SCHEDULER: Final = "scheduler-of-the-user"
REQUESTER: Final = "requester-of-the-user"
SUBSTITUTES: Final = {
    RELEASE_NAMESPACE: "$.Release.Namespace",
    NAMESPACE: "$facts.kubevirtNamespace",
    f'"{SCHEDULER}"': "$facts.onlyByWebhookNames",
    f'"{REQUESTER}"': "$facts.requesters",
}
_FRAGMENT = Mapping[str, Any]


@dataclass(frozen=True)
class Knob:
    """A fact about the settings that is true or false.

    Attributes:
        expression: how a Go template finds it out.
        on: a fragment of a settings file under which it is true.
        off: one under which it is false.
    """

    expression: str
    on: _FRAGMENT
    off: _FRAGMENT


def setting(path: str) -> str:
    """A setting in a Go template, with the default of the settings' model."""
    value: Any = effective()
    for part in path.split("."):
        value = value[part]
    default = str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
    keys = " ".join(f'"{part}"' for part in path.split("."))
    return f"(dig {keys} {default} $settings)"


def _fragment(path: str, value: Any) -> _FRAGMENT:
    for part in reversed(path.split(".")):
        value = {part: value}
    fragment: _FRAGMENT = value
    return fragment


def _flag(path: str) -> Knob:
    return Knob(setting(path), _fragment(path, value=True), _fragment(path, value=False))


def _fails(path: str) -> Knob:
    return Knob(f'eq {setting(path)} "Fail"', _fragment(path, "Fail"), _fragment(path, "Ignore"))


def _positive(path: str) -> Knob:
    return Knob(f"gt (int {setting(path)}) 0", _fragment(path, 1), _fragment(path, 0))


REGISTRATION: Final[Mapping[str, Knob]] = {
    **{f"{policy}ClusterWide": _flag(f"{policy}.clusterWide") for policy in BY_NAME},
    **{
        f"{policy}Fail": _fails(f"{policy}.failurePolicy")
        for policy in BY_NAME
        if "failurePolicy" in effective()[policy]
    },
    "inboundLimit": _positive("migration.maxInboundPerNode"),
    "protectedTransfers": _positive("eviction.protectTransfersSeconds"),
    "virtualMachines": _flag("scheduling.virtualMachines"),
    "virtualMachineInstances": _flag("scheduling.virtualMachineInstances"),
    "spread": Knob(f'ne {setting("scheduling.spread")} "off"', {"scheduling": {"spread": "both"}}, {}),
    "spreadVirtualMachines": _flag("scheduling.spreadVirtualMachines"),
    "spreadVirtualMachineInstances": _flag("scheduling.spreadVirtualMachineInstances"),
    "instancetypesVirtualMachines": _flag("instancetypes.virtualMachines"),
    "instancetypesVirtualMachineInstances": _flag("instancetypes.virtualMachineInstances"),
    "headroom": _flag("headroom.enabled"),
    "inKnownNamespace": Knob(f'ne {setting("kubevirt.namespace")} ""', {"kubevirt": {"namespace": NAMESPACE}}, {}),
    "onlyByWebhook": Knob(
        "not (empty $onlyByWebhook)",
        {"schedulers": {SCHEDULER: {"healthCheck": "off", "onlyByWebhook": True}}},
        {"schedulers": {SCHEDULER: {"healthCheck": "off"}}},
    ),
    # YAML 1.1 reads an unquoted on as true.
    "events": Knob(f'has (toString {setting("events")}) (list "on" "true")', {"events": "on"}, {"events": "off"}),
}


def settings_of(knobs: Mapping[str, bool]) -> dict[str, Any]:
    """A settings file's content under which knobs have these values."""
    result: dict[str, Any] = {
        "eviction": {"requesters": [REQUESTER]},
        "webhooks": {"service": {"namespace": RELEASE_NAMESPACE}},
    }
    for name, knob in REGISTRATION.items():
        _merge(result, knob.on if knobs.get(name) else knob.off)
    return result


def _merge(into: dict[str, Any], fragment: _FRAGMENT) -> None:
    for key, value in fragment.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _listener(path: str) -> str:
    """Whether an address is set that other pods can reach."""
    address = setting(path)
    host = f'(regexReplaceAll ":[0-9]*$" {address} "")'
    return f'and (ne {address} "") (not (has {host} (list "127.0.0.1" "[::1]" "localhost")))'


def _port(path: str) -> str:
    return f'(splitList ":" {setting(path)} | last)'


def _yaml(name: str, expression: str) -> str:
    return f"{name}: {{{{ {expression} }}}}"


def helpers() -> str:
    """The template `kubevirt-webhook.facts`: YAML with all that the other templates ask."""
    excluded = " ".join(f'"{one}"' for one in effective()["excludedNamespaces"])
    requesters = " ".join(f'"{one}"' for one in effective()["eviction"]["requesters"])
    scan = f"gt (int {setting('driftScan.everyMinutes')}) 0"
    lines = [
        *(_yaml(name, knob.expression) for name, knob in REGISTRATION.items()),
        _yaml("openshift", ".Values.openshift"),
        _yaml("certManager", 'eq .Values.certificates "cert-manager"'),
        _yaml("kubevirtPlugin", ".Values.kubevirtPlugin"),
        _yaml("autoscaling", ".Values.autoscaling.enabled"),
        _yaml("monitoring", ".Values.monitoring.enabled"),
        _yaml("dashboard", ".Values.dashboard.enabled"),
        _yaml("networkPolicy", ".Values.networkPolicy.enabled"),
        _yaml("callers", "not (empty .Values.networkPolicy.callers)"),
        _yaml("podDisruptionBudget", ".Values.podDisruptionBudget.enabled"),
        _yaml("fidelity", f"gt (int {setting('instancetypes.fidelityCheck.sample')}) 0"),
        _yaml("preemption", setting("preemption.requestMigrations")),
        _yaml("drift", scan),
        _yaml("policyReports", f"and ({scan}) {setting('driftScan.policyReports')}"),
        _yaml("admin", _listener("admin.listen")),
        _yaml("adminPort", f"{_port('admin.listen')} | default 0"),
        _yaml("metrics", f"and ({_listener('admin.listen')}) {setting('admin.metrics')}"),
        _yaml("layers", _listener("layers.listen")),
        _yaml("layersPort", f"{_port('layers.listen')} | default 0"),
        _yaml("shutdownSeconds", setting("server.shutdownSeconds")),
        _yaml("timeoutSeconds", setting("webhooks.timeoutSeconds")),
        _yaml("kubevirtNamespace", f"{setting('kubevirt.namespace')} | quote"),
        _yaml(
            "onlyByWebhookNames",
            '$onlyByWebhook | toJson | trimPrefix "[" | trimSuffix "]" | replace "," ", " | squote',
        ),
        _yaml("requesters", '$requesters | toJson | trimPrefix "[" | trimSuffix "]" | replace "," ", " | squote'),
        _yaml("callerBlocks", "$callers | toJson"),
        _yaml("excludedNamespaces", "$excluded | uniq | sortAlpha | toJson"),
        _yaml("namespaceSelector", "$selector | toJson"),
    ]
    return f"""\
{{{{- /* What the settings ask of the objects. The defaults are those of the settings' model. */}}}}
{{{{- define "kubevirt-webhook.facts" -}}}}
{{{{- include "kubevirt-webhook.check" . }}}}
{{{{- $settings := .Values.settings }}}}
{{{{- $onlyByWebhook := list }}}}
{{{{- range $name, $scheduler := dig "schedulers" (dict) $settings }}}}
{{{{- if dig "onlyByWebhook" false $scheduler }}}}{{{{ $onlyByWebhook = append $onlyByWebhook $name }}}}{{{{ end }}}}
{{{{- end }}}}
{{{{- $requesters := dig "eviction" "requesters" (list {requesters}) $settings }}}}
{{{{- $kubevirt := {setting("kubevirt.namespace")} | default "kubevirt" }}}}
{{{{- $own := list "kube-system" .Release.Namespace $kubevirt }}}}
{{{{- $excluded := concat $own (dig "excludedNamespaces" (list {excluded}) $settings) }}}}
{{{{- $callers := list }}}}
{{{{- range .Values.networkPolicy.callers }}}}
{{{{- $callers = append $callers (dict "ipBlock" (dict "cidr" .)) }}}}
{{{{- end }}}}
{{{{- $selector := list }}}}
{{{{- range dig "webhooks" "namespaceSelector" "matchExpressions" (list) $settings }}}}
{{{{- $selector = append $selector (empty .values | ternary (omit . "values") .) }}}}
{{{{- end }}}}
{chr(10).join(lines)}
{{{{- end }}}}
"""
