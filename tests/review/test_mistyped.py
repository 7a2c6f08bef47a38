"""Whatever type the values have that a tenant writes, no review ends as an internal error.

Every key of an object, of the object that it replaces, and of the objects that are read beside it as plain JSON, gets
values of all types, one key at a time, or is left out. The keys that policies look for get such values, too, where they
are absent: CRDs have no schema for a template's metadata, so that the API server stores there whatever is written.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec
import pytest

from tests.builders import Json, review, vm
from tests.policies.decisions import declaring
from tests.policies.instancetypes import world as of_instancetypes
from tests.review.test_batches import (
    CASES,
    DEFAULTS,
    EXPANDING,
    MARKS,
    OBJECTS,
    SCHEDULED,
    SPREAD,
    ZONED,
    Case,
    RemoteCluster,
    evaluated,
    updated,
)
from webhook import names
from webhook.admission.reasons import common
from webhook.facts import Key, ListKey
from webhook.k8s.types.meta import Unstructured
from webhook.policies.common.ownership import LAST_APPLIED
from webhook.policies.scheduling.spread import constraints

Path = tuple[str | int, ...]

VALUES: tuple[Any, ...] = (5, 0.5, -(2**70), True, False, None, "", "x" * 20_000, "hostname", "off", [], ["x"], [None])
VALUES += ({}, {"x": 1}, {"name": 5}, [{"x": None}], [[]])

ANNOTATIONS = [value for name, value in vars(names).items() if name.endswith("_ANNOTATION")]
KEYS = [*ANNOTATIONS, LAST_APPLIED, *map(names.policy_label, (names.SCHEDULING, names.INSTANCETYPES))]
METADATA: tuple[Path, ...] = (("metadata",), ("spec", "template", "metadata"))


class LenientCluster(RemoteCluster):
    """Has none of the objects that it was not given: their names were mistyped."""

    async def read(self, key: Key[Any], deadline: float) -> Any:
        if self.given(key) not in self.facts:
            return () if isinstance(key, ListKey) else None
        return await super().read(key, deadline)


async def evaluate(case: Case, body: Json, facts: Mapping[Key[Any], object]) -> None:
    """A review, which fails the test where an error is reported as internal."""
    verdict, _ = await evaluated(case.path, body, facts, case.section, LenientCluster)
    assert verdict.decision.code != common.BUG


# What else is looked for.
MORE: tuple[Path, ...] = (
    ("metadata", "managedFields"),
    ("metadata", "ownerReferences"),
    ("spec", "instancetype"),
    ("spec", "preference"),
    ("spec", "template", "spec", "schedulerName"),
    ("status", "instancetypeRef"),
    ("status", "preferenceRef"),
)


def spread_out(spread: str = "hostname", *, annotated: bool = True) -> Json:
    """A VM with constraints that were injected."""
    made = vm("kubevirt", of_instancetypes.SMALL, "kubevirt")
    made["spec"]["template"]["spec"]["topologySpreadConstraints"] = constraints(spread)
    if annotated:
        made["metadata"]["annotations"][names.INJECTED_SPREAD_ANNOTATION] = spread
        made["spec"]["template"]["metadata"]["annotations"][names.INJECTED_SPREAD_ANNOTATION] = spread
    return made


def declared(made: Json) -> Json:
    """A VM whose owner's manifest declares a part of what was injected."""
    listed = ("spec", "template", "spec", "topologySpreadConstraints", 'k:{"topologyKey":"x"}', "maxSkew")
    return declaring(made, listed, ("spec", "instancetype", "name"))


SCHEDULING = "/mutate/scheduling/virtualmachines/enforce"
INSTANCETYPES = "/mutate/instancetypes/virtualmachines/enforce"
WITH_SPREAD = {
    "constraints that were overwritten": Case(
        SCHEDULING, updated(spread_out(), vm(instancetype=of_instancetypes.SMALL)), SCHEDULED | ZONED, "", SPREAD
    ),
    "constraints beside those of the owner": Case(
        SCHEDULING, updated(spread_out(), declared(spread_out("both"))), SCHEDULED | ZONED, "", SPREAD
    ),
    "constraints that stay": Case(SCHEDULING, updated(spread_out(), spread_out()), SCHEDULED | ZONED, "", SPREAD),
    "constraints that were injected before": Case(SCHEDULING, review(spread_out()), SCHEDULED | ZONED, "", SPREAD),
    "a default that the owner has written into": Case(
        INSTANCETYPES,
        updated(
            of_instancetypes.vm(
                annotations=MARKS, instancetype=of_instancetypes.SMALL, preference=of_instancetypes.FEDORA
            ),
            declared(
                of_instancetypes.vm(
                    annotations={names.INJECTED_INSTANCETYPE_ANNOTATION: of_instancetypes.SMALL_MARK},
                    instancetype=of_instancetypes.SMALL,
                )
            ),
        ),
        of_instancetypes.facts(OBJECTS),
        "",
        DEFAULTS,
    ),
    "an expanded VM that was overwritten": Case(
        INSTANCETYPES,
        updated(
            of_instancetypes.vm(
                {"memory": {"guest": "4Gi"}},
                annotations={names.INJECTED_INSTANCETYPE_ANNOTATION: of_instancetypes.SMALL_MARK},
            ),
            of_instancetypes.vm(),
        ),
        of_instancetypes.facts(OBJECTS),
        "",
        EXPANDING,
    ),
}
ALL = CASES | WITH_SPREAD


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """The paths of all values in plain JSON, but for the root."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from paths(inner, (*path, key))


def written(value: Json, path: Path, new: object) -> Json:
    """A copy with another value at a path; objects on the way are made."""
    result = copy.deepcopy(value)
    inner: Any = result
    for key in path[:-1]:
        if isinstance(inner, dict) and not isinstance(inner.get(key), dict | list):
            inner[key] = {}
        inner = inner[key]
    inner[path[-1]] = new
    return result


def without(value: Json, path: Path) -> Json:
    """A copy that lacks what stands at a path."""
    result = copy.deepcopy(value)
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return result


def places(obj: Json) -> list[Path]:
    """What is there, and what is looked for."""
    looked_for: list[Path] = [
        (*meta, part, key) for meta in METADATA for part in ("annotations", "labels") for key in KEYS
    ]
    return list(dict.fromkeys([*paths(obj), *looked_for, *MORE]))


@pytest.mark.parametrize(
    ("case", "part"),
    [
        pytest.param(case, part, id=f"{name}, {part}")
        for name, case in ALL.items()
        for part in ("object", "oldObject")
        if case.body["request"][part]
    ],
)
async def test_no_type_of_a_value_is_an_internal_error(case: Case, part: str) -> None:
    request = case.body["request"]
    for path in places(request[part]):
        for value in VALUES:
            body = case.body | {"request": request | {part: written(request[part], path, value)}}
            await evaluate(case, body, case.facts)
    for path in paths(request[part]):
        await evaluate(case, case.body | {"request": request | {part: without(request[part], path)}}, case.facts)


KEYED = ("spec", "template", "spec", "topologySpreadConstraints")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: msgspec.json.encode(value).decode()[:20])
@pytest.mark.parametrize("case", WITH_SPREAD.values(), ids=list(WITH_SPREAD))
async def test_nor_is_that_of_a_record_of_who_wrote_what(case: Case, value: object) -> None:
    """By it fields are named as texts of JSON, in which any type can stand too."""
    key = "k:" + json.dumps({"topologyKey": value, "whenUnsatisfiable": "ScheduleAnyway"})
    trees = [f"k:{json.dumps(value)}", key, "f:topologySpreadConstraints"]
    request = case.body["request"]
    for part in ("object", "oldObject") if request["oldObject"] else ("object",):
        for made in (
            declaring(copy.deepcopy(request[part]), *((*KEYED, tree, "f:maxSkew") for tree in trees)),
            *(written(request[part], ("metadata", "annotations", LAST_APPLIED), text) for text in manifests(value)),
        ):
            await evaluate(case, case.body | {"request": request | {part: made}}, case.facts)


def manifests(value: object) -> Iterator[str]:
    """Manifests of client-side apply, each with a value in another place."""
    yield json.dumps(value)
    whole: Json = {
        "metadata": {},
        "spec": {"template": {"spec": {"topologySpreadConstraints": []}}, "instancetype": {}},
    }
    for path in paths(whole):
        yield json.dumps(written(whole, path, value))


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT", ""])
@pytest.mark.parametrize("case", ALL.values(), ids=list(ALL))
async def test_nor_is_any_operation(case: Case, operation: str) -> None:
    request = case.body["request"] | {"operation": operation}
    objects: tuple[Json | None, ...] = (None, {}, request["object"], request["oldObject"])
    for pair in product(objects, objects):
        both = dict(zip(("object", "oldObject"), pair, strict=True))
        await evaluate(case, case.body | {"request": request | both}, case.facts)


@pytest.mark.parametrize("case", ALL.values(), ids=list(ALL))
async def test_nor_is_that_of_an_object_that_is_read_beside_it(case: Case) -> None:
    plain = {key: fact for key, fact in case.facts.items() if isinstance(fact, Unstructured) or is_list(fact)}
    for key, fact in plain.items():
        one = fact[0] if isinstance(fact, tuple) else fact
        assert isinstance(one, Unstructured)
        for path in paths(msgspec.to_builtins(one)):
            for value in VALUES:
                try:
                    spoiled = msgspec.convert(written(msgspec.to_builtins(one), path, value), Unstructured)
                except msgspec.ValidationError:
                    continue  # as the client would: such an object is unreadable
                await evaluate(case, case.body, {**case.facts, key: (spoiled,) if isinstance(fact, tuple) else spoiled})


def is_list(fact: object) -> bool:
    return isinstance(fact, tuple) and bool(fact) and isinstance(fact[0], Unstructured)
