"""The JSON Schema of the chart's values, with that of the settings file in it."""

from __future__ import annotations

from typing import Any, Final

from webhook.install.plan import DIGEST_ANNOTATION
from webhook.settings.file import schema as settings_schema

_MAP: Final = {"type": "object", "additionalProperties": {"type": "string"}}
# The selectors' label, and the annotations that the chart writes itself: a mapping cannot have a key twice.
_LABELS: Final = {**_MAP, "propertyNames": {"not": {"const": "app.kubernetes.io/name"}}}
_ANNOTATIONS: Final = {
    **_MAP,
    "propertyNames": {"not": {"enum": [DIGEST_ANNOTATION, "kubectl.kubernetes.io/default-container"]}},
}
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
    # All have defaults; a value that is null removes them.
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


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
    result = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        **_object(
            image=image,
            imagePullSecrets=_LIST,
            replicas={"type": "integer", "minimum": 1},
            resources={"type": "object"},
            nodeSelector=_MAP,
            tolerations=_LIST,
            affinity={"type": "object"},
            topologySpreadConstraints=_LIST,
            commonLabels=_LABELS,
            podLabels=_LABELS,
            podAnnotations=_ANNOTATIONS,
            openshift=_BOOLEAN,
            certificates={"enum": ["managed", "cert-manager"]},
            networkPolicy=_object(
                enabled=_BOOLEAN,
                callers={"type": "array", "items": _text("A CIDR block.", pattern="^[0-9a-fA-F:.]+/[0-9]{1,3}$")},
            ),
            podDisruptionBudget=_object(
                enabled=_BOOLEAN, maxUnavailable={"type": ["integer", "string"], "pattern": "^[0-9]+%$"}
            ),
            autoscaling=_object(
                enabled=_BOOLEAN,
                minReplicas={"type": "integer", "minimum": 1},
                maxReplicas={"type": "integer", "minimum": 1},
                averageCpu=_text("CPU of a replica at which another one is started."),
            ),
            monitoring=_object(
                enabled=_BOOLEAN,
                labels=_LABELS,
                interval=_text("Of scrapes.", pattern="^[0-9]+[smh]$"),
                runbookUrl=_text("Where the sections of docs/runbooks.md are.", pattern="^https?://[^\\s'\"#{}]+$"),
            ),
            dashboard=_object(enabled=_BOOLEAN, labels=_LABELS),
            settings=settings,
        ),
    }
    # Helm's own: values for charts that contain this one.
    result["properties"]["global"] = {"type": "object"}
    return result
