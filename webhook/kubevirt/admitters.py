"""What virt-api finds wrong in an object by itself, before it looks anything up.

It is in KubeVirt's pkg/virt-api/webhooks/validating-webhook/admitters and pkg/instancetype/webhooks. Only a part of
virt-api's validation is here: the metadata of templates is compared with KubeVirt's API elsewhere, and the spec of VMIs
is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from webhook.k8s.types.selectors import LabelSelector
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.pools import POOL, REPLICA_SET
from webhook.kubevirt.rejection import Cause
from webhook.kubevirt.releases import fields
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.webhooks import admit_instancetype, admit_preference

_INVALID: Final = "FieldValueInvalid"
_RUN_STRATEGIES: Final = frozenset({"Halted", "Manual", "Always", "RerunOnFailure", "Once"})
# Whether it is valid depends on a feature gate.
_WAIT_AS_RECEIVER: Final = "WaitAsReceiver"
_INSTANCETYPES: Final = frozenset({fields.INSTANCETYPE, fields.CLUSTER_INSTANCETYPE})
_PREFERENCES: Final = frozenset({fields.PREFERENCE, fields.CLUSTER_PREFERENCE})


def causes_of(kind: str, obj: Json, rules: Rules) -> Sequence[Cause]:
    """Why virt-api denies an object of a kind of KubeVirt, plain JSON that its schema allows; empty: for no reason."""
    if kind in _INSTANCETYPES:
        return admit_instancetype(obj, rules).causes
    if kind in _PREFERENCES:
        return admit_preference(obj, rules).causes
    # Nothing keeps what is being deleted.
    if obj["metadata"].get("deletionTimestamp"):
        return ()
    spec = obj["spec"]
    if kind == fields.VIRTUAL_MACHINE:
        return _check_run_strategy(spec, "spec")
    if kind == POOL:
        template = spec["virtualMachineTemplate"]
        # Its schema needs none, and Go sees an empty one.
        of_vms = _check_run_strategy(template.get("spec") or {}, "spec.virtualMachineTemplate.spec")
        return [*of_vms, *_check_selector(spec, template)]
    return _check_selector(spec, spec["template"]) if kind == REPLICA_SET else ()


def _check_run_strategy(spec: Json, field: str) -> list[Cause]:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is None and strategy is None:
        return [Cause(_INVALID, "RunStrategy must be specified", f"{field}.running")]
    causes = []
    if running is not None and strategy is not None:
        text = "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy"
        causes.append(Cause(_INVALID, f"{text} instead", f"{field}.running"))
    if strategy not in {None, _WAIT_AS_RECEIVER, *_RUN_STRATEGIES}:
        causes.append(Cause(_INVALID, f"Invalid RunStrategy ({strategy})", f"{field}.runStrategy"))
    return causes


def _check_selector(spec: Json, template: Json) -> list[Cause]:
    """Whether a selector selects what is made of the template; a malformed one is not judged."""
    metadata: Any = template.get("metadata")
    labels = (metadata.get("labels") if isinstance(metadata, dict) else None) or {}
    try:
        selector = msgspec.convert(spec["selector"], LabelSelector)
    except msgspec.ValidationError:
        return []
    if selector.matches(labels, malformed=True):
        return []
    return [Cause(_INVALID, "selector does not match labels.", "spec.selector")]
