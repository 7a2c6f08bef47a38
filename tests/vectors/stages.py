"""The webhook's answer to every stage of a case, in the shape of KubeVirt's, and how the two differ."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from tests.kubevirt import plain
from tests.vectors.cases import Json, VectorCase
from webhook.errors import InputError
from webhook.kubevirt import webhooks
from webhook.kubevirt.go_json.origins import leaves
from webhook.kubevirt.go_json.structs import encode
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.rejection import CAUSES_SHOWN, Conflicts, Rejection
from webhook.kubevirt.vm.controller import Round
from webhook.kubevirt.webhooks import VmAdmission


def uuids() -> Callable[[], str]:
    """The fixed ones that stand for random ones in the vectors."""
    return partial(next, (f"00000000-0000-4000-8000-{number:012}" for number in count(1)))


def answers(case: VectorCase) -> Iterator[tuple[str, Json]]:
    """The answers to the stages that KubeVirt has answered, later ones on the VM that ``mutate`` has changed."""
    given = dict(case.given)
    for stage in (*_STAGES, *sorted(case.expected.keys() - _STAGES.keys())):
        if stage not in case.expected:
            continue
        if stage not in _STAGES:
            raise InputError(f"names the stage {stage}, which there is not", case.id)
        try:
            answer = _STAGES[stage](case, given)
        except InputError as rejection:
            answer = {"allowed": False, "error": rejection.what}
        if stage == "mutate" and answer.get("allowed"):
            given["vm"] = answer["vm"]
        yield stage, answer


def _written(answer: VmAdmission) -> Json:
    written: Json = {"allowed": answer.is_allowed}
    if not answer.is_allowed:
        written |= {"code": answer.code, "message": answer.message, "error": answer.message}
    if answer.causes:
        written["causes"] = [plain.as_json(cause) for cause in answer.causes]
    if isinstance(answer, plain.PlainAdmission) and answer.vm is not None:
        written["vm"] = answer.vm
    return written


def _mutate(case: VectorCase, given: Json) -> Json:
    old = given.get("oldVM") if given.get("operation") == "UPDATE" else None
    return _written(plain.mutate_vm(given["vm"], case.get, uuids(), case.configuration, old))


def _controller(case: VectorCase, given: Json) -> Json:
    whole = Round(given["vm"], case.get, case.configuration)
    try:
        synced = whole.sync()
    except Rejection as rejection:
        return {"error": rejection.what}
    before = [
        item
        for item in case.objects
        if item.get("kind") == "ControllerRevision" and item["metadata"]["name"] not in whole._store.deleted
    ]
    answer: Json = {"vm": synced, "controllerRevisions": [*before, *whole._store.created]}
    try:
        answer["vmi"] = encode(case.rules.vmi, whole.build()[0])
        answer["admittedVMI"] = plain.create(answer["vmi"], case.configuration, uuids())
    except Rejection as rejection:
        answer["error"] = rejection.what
    return answer


def _expand(case: VectorCase, given: Json) -> Json:
    try:
        return {"vm": expand(given["vm"], case.get, case.configuration)}
    except Conflicts as rejection:
        return {
            "conflicts": ", ".join(rejection.paths),
            "causes": [plain.as_json(conflict) for conflict in rejection.conflicts],
            "error": rejection.what,
        }


# In the order in which KubeVirt comes to them.
_STAGES: dict[str, Callable[[VectorCase, Json], Json]] = {
    "instancetypeSpec": lambda case, given: _written(webhooks.admit_instancetype(given["instancetype"], case.rules)),
    "preferenceSpec": lambda case, given: _written(webhooks.admit_preference(given["preference"], case.rules)),
    "mutate": _mutate,
    "admit": lambda case, given: _written(plain.validate_vm(given["vm"], case.get, case.configuration)),
    "controller": _controller,
    "expand": _expand,
    "vmi": lambda case, given: {"admittedVMI": plain.create(given["vmi"], case.configuration, uuids())},
}
STAGES = tuple(_STAGES)


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
