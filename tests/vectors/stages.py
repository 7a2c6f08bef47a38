"""The webhook's answer to every stage of a case, in the shape of KubeVirt's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from tests.kubevirt import plain
from tests.vectors.cases import Json, VectorCase
from webhook.errors import InputError
from webhook.kubevirt import webhooks
from webhook.kubevirt.go_json.structs import encode
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.rejection import Conflicts, Rejection
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


def _admit(case: VectorCase, given: Json) -> Json:
    return _written(plain.validate_vm(given["vm"], case.get, case.configuration))


def _controller(case: VectorCase, given: Json) -> Json:
    whole = Round(given["vm"], case.get, case.configuration)
    try:
        synced = whole.sync()
    except Rejection as rejection:
        return {"error": rejection.what}
    before = [
        item
        for item in case.objects
        if item.get("kind") == "ControllerRevision" and item["metadata"]["name"] not in whole.store.deleted
    ]
    answer: Json = {"vm": synced, "controllerRevisions": [*before, *whole.store.created]}
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


def _vmi(case: VectorCase, given: Json) -> Json:
    return {"admittedVMI": plain.create(given["vmi"], case.configuration, uuids())}


def _instancetype_spec(case: VectorCase, given: Json) -> Json:
    return _written(webhooks.admit_instancetype(given["instancetype"], case.rules))


def _preference_spec(case: VectorCase, given: Json) -> Json:
    return _written(webhooks.admit_preference(given["preference"], case.rules))


# In the order in which KubeVirt comes to them.
_STAGES: dict[str, Callable[[VectorCase, Json], Json]] = {
    "instancetypeSpec": _instancetype_spec,
    "preferenceSpec": _preference_spec,
    "mutate": _mutate,
    "admit": _admit,
    "controller": _controller,
    "expand": _expand,
    "vmi": _vmi,
}
STAGES = tuple(_STAGES)
