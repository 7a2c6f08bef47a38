"""The JSON Schema of the chart's values, with that of the settings file in it."""

from __future__ import annotations

from typing import Any, Final

from webhook.install.plan import DIGEST_ANNOTATION
from webhook.settings.validation import schema as settings_schema
from webhook.settings_file import MODEL

# Kubernetes' own rules: what the API server would deny is an error before anything is installed.
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = f"^([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}$"
_MAP: Final = {
    "type": "object",
    "patternProperties": {_KEY: {"type": "string", "pattern": f"^({_NAME})?$"}},
    "additionalProperties": False,
}
# The selectors' label, and the annotations that the chart writes itself: a mapping cannot have a key twice.
_LABELS: Final = {**_MAP, "propertyNames": {"not": {"const": "app.kubernetes.io/name"}}}
_OWN_ANNOTATIONS: Final = (DIGEST_ANNOTATION, "kubectl.kubernetes.io/default-container", "openshift.io/required-scc")
_ANNOTATIONS: Final = {
    **_MAP,
    "patternProperties": {_KEY: {"type": "string"}},
    "propertyNames": {"not": {"enum": [*_OWN_ANNOTATIONS]}},
}
# The templates take the port from it; it is written here since a mistake in YAML would switch off all that follows.
_PORT: Final = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_LISTEN: Final = {"listen": {"pattern": f"^([-0-9A-Za-z.:%\\[\\]]*:{_PORT})?$"}}
_INT32: Final = 2**31 - 1
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_COUNT: Final = {"type": "integer", "minimum": 1, "maximum": _INT32}
_BOOLEAN: Final = {"type": "boolean"}
# What the manifests fix, as `install` checks it.
_FIXED: Final[dict[str, dict[str, Any]]] = {
    "ServiceSettings": {
        "name": {"const": "kubevirt-webhook"},
        "port": {"const": 443},
    },
    "TlsSettings": {"secretName": {"const": "kubevirt-webhook-ca"}},
    **dict.fromkeys(("AdminSettings", "LayersSettings"), _LISTEN),
    "ServerSettings": {"listen": {"pattern": ":8443$"}, "opsListen": {"pattern": ":8080$"}},
}


def _object(**properties: Any) -> dict[str, Any]:
    # All have defaults; a value that is null removes them.
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def schema() -> dict[str, Any]:
    """The schema, for `values.schema.json`."""
    settings = settings_schema(MODEL)
    definitions = settings.pop("$defs")
    del settings["$schema"]
    for section, keys in _FIXED.items():
        for key, limit in keys.items():
            definitions[section]["properties"][key].update(limit)
    # YAML 1.1, which Helm reads, makes booleans of these words.
    settings["properties"]["events"]["enum"] = ["off", "on", False, True]
    image = _object(
        repository=_text(
            "Image without tag and digest. Required.", pattern="^([A-Za-z0-9[][-A-Za-z0-9_.:/\\]]{0,254})?$"
        ),
        tag=_text("Tag of the image. Empty: the chart's appVersion.", pattern="^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$"),
        digest=_text("Digest of the image; it wins over the tag.", pattern="^(sha256:[0-9a-f]{64})?$"),
        pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    )
    result = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        **_object(
            image=image,
            imagePullSecrets=_LIST,
            replicas=_COUNT,
            resources={"type": "object"},
            nodeSelector=_MAP,
            tolerations=_LIST,
            affinity={"type": "object"},
            topologySpreadConstraints=_LIST,
            commonLabels=_LABELS,
            podLabels=_LABELS,
            podAnnotations=_ANNOTATIONS,
            openshift=_BOOLEAN,
            kubevirtPlugin=_BOOLEAN,
            certificates={"enum": ["managed", "cert-manager"]},
            networkPolicy=_object(
                enabled=_BOOLEAN,
                callers={"type": "array", "items": _text("A CIDR block.", pattern="^[0-9a-fA-F:.]+/[0-9]{1,3}$")},
            ),
            podDisruptionBudget=_object(
                enabled=_BOOLEAN,
                maxUnavailable={
                    "type": ["integer", "string"],
                    "pattern": "^[0-9]{1,3}%$",
                    "minimum": 0,
                    "maximum": _INT32,
                },
            ),
            autoscaling=_object(
                enabled=_BOOLEAN,
                minReplicas=_COUNT,
                maxReplicas=_COUNT,
                averageCpu=_text(
                    "CPU of a replica at which another one is started.", pattern="^[0-9]{1,9}([.][0-9]{1,3})?m?$"
                ),
            ),
            monitoring=_object(
                enabled=_BOOLEAN,
                labels=_LABELS,
                interval=_text("Of scrapes.", pattern="^[0-9]{1,9}[smh]$"),
                runbookUrl=_text(
                    "Where the sections of docs/runbooks.md are.",
                    pattern="^https?://[-A-Za-z0-9._~:/?@!$&()*+,;=%[\\]]{1,1000}$",
                ),
            ),
            dashboard=_object(enabled=_BOOLEAN, labels=_LABELS),
            settings=settings,
        ),
    }
    # Helm's own: values for charts that contain this one.
    result["properties"]["global"] = {"type": "object"}
    return result
