"""Comparing the webhook's answers with KubeVirt's."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.vectors.cases import Json
from webhook.kubevirt.go_json.origins import leaves
from webhook.kubevirt.rejection import CAUSES_SHOWN

# Go iterates over maps at random: several annotation conflicts come in any order.
_ANNOTATIONS = re.compile(r"annotations\.[^,\s\]]+(?:, annotations\.[^,\s\]]+)+")
# In front of the controller's errors, the vectors name the step that failed; KubeVirt doesn't.
_STEP = re.compile("^[a-z]+: ")
# KubeVirt quotes the content of a revision, and the webhook never does.
_QUOTED = (
    (re.compile(r"(Object '\w+' is missing) in '.*'", re.DOTALL), r"\1"),
    (
        re.compile(r'no kind "(?!VirtualMachine(?:Cluster)?(?:Instancetype|Preference)").*" is reg.*"', re.DOTALL),
        "it is not an instancetype or preference",
    ),
)


def differences(stage: str, expected: Json, ours: Json) -> list[str]:
    """The differences, a line each; nothing where the answers agree.

    Only what KubeVirt's answer mentions is compared; of the VM that ``mutate`` returns the matchers and the template's
    spec, and of ControllerRevisions names, labels and data. A crash of KubeVirt's agrees with any error that says
    why.
    """
    if "panic" in expected:
        refused = bool(ours.get("error")) and not ours.get("allowed")
        return [] if refused else [f"KubeVirt crashes ({expected['panic']}), and we don't refuse"]
    lines = []
    for key, value in expected.items():
        lines += _compare(key, *(_normalized(stage, key, side) for side in (value, ours.get(key))))
    # A yes where the other side says no, or gave up.
    lines += [f"+ {key}: {_short(ours[key])}" for key in ("error", "panic") if ours.get(key) and _says_yes(expected)]
    return lines


def _says_yes(expected: Json) -> bool:
    return not expected.keys() & {"error", "causes", "message"}


def _normalized(stage: str, key: str, value: Any) -> Any:
    if value is None:
        return None
    if stage == "mutate" and key == "vm":
        spec = value["spec"]
        return {
            "instancetype": spec.get("instancetype"),
            "preference": spec.get("preference"),
            "template": spec["template"]["spec"],
        }
    if key == "controllerRevisions":
        parts = [
            {
                "name": item["metadata"]["name"],
                "labels": item["metadata"].get("labels") or None,
                "data": item.get("data"),
            }
            for item in value
        ]
        return sorted(parts, key=lambda part: str(part["name"]))
    if key == "causes":
        return _sorted_annotations(value)
    if isinstance(value, str):
        value = _ANNOTATIONS.sub(lambda match: ", ".join(sorted(match[0].split(", "))), value)
        for quoted, said in _QUOTED:
            value = quoted.sub(said, value)
        return _STEP.sub("", value) if stage == "controller" and key == "error" else value
    return value


def _sorted_annotations(causes: list[Json]) -> list[Json]:
    if len(causes) == CAUSES_SHOWN:
        # Which of them were cut off is random, too.
        return [{"field": "annotations"} if _is_annotation(cause) else cause for cause in causes]
    rest = iter(sorted(filter(_is_annotation, causes), key=lambda cause: str(cause["field"])))
    return [next(rest) if _is_annotation(cause) else cause for cause in causes]


def _is_annotation(cause: Json) -> bool:
    return str(cause.get("field", "")).startswith("annotations.")


def _compare(key: str, expected: Any, ours: Any) -> list[str]:
    if expected == ours:
        return []
    left, right = dict(leaves(expected, key)), dict(leaves(ours, key))
    lines = []
    for path in sorted(left.keys() | right.keys()):
        if path in left and (path not in right or left[path] != right[path]):
            lines.append(f"- {path}: {_short(left[path])}")
        if path in right and (path not in left or left[path] != right[path]):
            lines.append(f"+ {path}: {_short(right[path])}")
    return lines or [f"- {key}: {_short(expected)}", f"+ {key}: {_short(ours)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"
