"""The JSON Schema of the chart's values, with that of the settings file in it."""

from __future__ import annotations

from typing import Any, Final

from webhook.settings.file import schema as settings_schema

_MAP: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_BOOLEAN: Final = {"type": "boolean"}
# What the manifests fix, as `install` checks it.
_FIXED: Final[dict[str, dict[str, Any]]] = {
    "Service": {
        "namespace": {"const": "kubevirt-webhook"},
        "name": {"const": "kubevirt-webhook"},
        "port": {"const": 443},
    },
    "Tls": {"secretName": {"const": "kubevirt-webhook-ca"}},
    "Server": {"listen": {"pattern": ":8443$"}, "opsListen": {"pattern": ":8080$"}},
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def schema() -> dict[str, Any]:
    """The schema, for `values.schema.json`."""
    settings = settings_schema()
    definitions = settings.pop("$defs")
    del settings["$schema"]
    for section, keys in _FIXED.items():
        for key, limit in keys.items():
            definitions[section]["properties"][key].update(limit)
    # YAML 1.1, which Helm reads, makes booleans of these words.
    settings["properties"]["events"]["enum"] = ["off", "on", False, True]
    image = _object(
        repository=_text("Image without tag and digest. Required."),
        tag=_text("Tag of the image. Empty: the chart's appVersion."),
        digest=_text("Digest of the image; it wins over the tag.", pattern="^(sha256:[0-9a-f]{64})?$"),
        pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        **_object(
            # Helm's own: values for charts that contain this one.
            **{"global": {"type": "object"}},
            image=image,
            imagePullSecrets=_LIST,
            replicas={"type": "integer", "minimum": 1},
            resources={"type": "object"},
            nodeSelector=_MAP,
            tolerations=_LIST,
            affinity={"type": "object"},
            topologySpreadConstraints=_LIST,
            commonLabels=_MAP,
            podLabels=_MAP,
            podAnnotations=_MAP,
            openshift=_BOOLEAN,
            certificates={"enum": ["managed", "cert-manager"]},
            networkPolicy=_object(enabled=_BOOLEAN, callers={"type": "array", "items": _text("A CIDR block.")}),
            podDisruptionBudget=_object(enabled=_BOOLEAN, maxUnavailable={"type": ["integer", "string"]}),
            autoscaling=_object(
                enabled=_BOOLEAN,
                minReplicas={"type": "integer", "minimum": 1},
                maxReplicas={"type": "integer", "minimum": 1},
                averageCpu=_text("CPU of a replica at which another one is started."),
            ),
            monitoring=_object(
                enabled=_BOOLEAN,
                labels=_MAP,
                interval=_text("Of scrapes.", pattern="^[0-9]+[smh]$"),
                runbookUrl=_text("Where the sections of docs/runbooks.md are.", pattern="^https?://[^\\s'\"#{}]+$"),
            ),
            dashboard=_object(enabled=_BOOLEAN, labels=_MAP),
            settings=settings,
        ),
    }
