"""Which fields count as declared by a manifest: those of server-side and of client-side apply, and no others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.policies.common.ownership import LAST_APPLIED, Manifests

NAME = ("spec", "instancetype", "name")


def found(*entries: Json, last_applied: Any = None, view: type[Unstructured] = UnstructuredVm) -> Unstructured:
    """A VM with what the API server and kubectl keep about it; text is taken as it is."""
    metadata: Json = {"name": "web", "managedFields": list(entries)}
    if last_applied is not None:
        text = last_applied if isinstance(last_applied, str) else json.dumps(last_applied)
        metadata["annotations"] = {LAST_APPLIED: text}
    # As a review is decoded: from text.
    return msgspec.json.decode(json.dumps({"metadata": metadata}), type=view)


def entry(fields: Json, operation: str = "Apply", **more: Any) -> Json:
    return {"manager": "flux", "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields} | more


NAMED: Json = {"f:spec": {"f:instancetype": {"f:name": {}}}}


def test_what_is_applied_is_declared_and_nothing_beside_it() -> None:
    manifests = Manifests(found(entry({"f:metadata": {}}), entry(NAMED)))
    assert manifests.declare(NAME, "u1.small")
    assert manifests.declare(("spec", "instancetype"), {})
    assert not manifests.declare(("spec", "instancetype", "kind"), "any")
    assert not manifests.declare(("spec", "preference", "name"), "fedora")
    # Views without the record declare nothing, nor objects without metadata.
    assert not Manifests(found(entry(NAMED), view=Unstructured)).declare(NAME, "u1.small")
    assert not Manifests(UnstructuredVm()).declare(NAME, "u1.small")


def test_who_merely_wrote_declares_nothing() -> None:
    others = (entry(NAMED, "Update"), entry(NAMED, subresource="status"), entry({"f:status": NAMED}))
    for other in (*others, {"operation": "Apply", "manager": "flux"}):
        assert not Manifests(found(other)).declare(NAME, "u1.small")


def test_the_manifest_of_a_client_side_apply_counts_while_it_says_what_is_there() -> None:
    manifests = Manifests(found(last_applied={"spec": {"instancetype": {"name": "u1.small", "kind": None}}}))
    assert manifests.declare(NAME, "u1.small")
    assert not manifests.declare(NAME, "u1.large")
    assert not manifests.declare(("spec", "instancetype", "kind"), None)


@pytest.mark.control("forged-ownership")
@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "null", '{"spec": 1}', '{"spec": {"instancetype": []}}', "[" * 5000]
)
def test_odd_manifests_declare_nothing(text: str) -> None:
    assert not Manifests(found(last_applied=text)).declare(NAME, "u1.small")


@pytest.mark.control("forged-ownership")
@pytest.mark.parametrize(
    "managed", ["null", "{}", "[1]", '[{"operation": "Apply", "fieldsV1": null}]', '[{"operation": 1}]']
)
def test_odd_records_declare_nothing(managed: str) -> None:
    vm = msgspec.json.decode(f'{{"metadata": {{"managedFields": {managed}}}}}', type=UnstructuredVm)
    assert not Manifests(vm).declare(NAME, "u1.small")


_KEYS = st.sampled_from([prefix + name for prefix in ("", "f:") for name in ("spec", "instancetype", "name")])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["u1.small", "f:spec", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.control("forged-ownership")
@given(fields=_JSON, applied=_JSON, operation=st.sampled_from(["Apply", "Update", ""]))
def test_whatever_stands_there_is_an_answer(fields: Any, applied: Any, operation: str) -> None:
    manifests = Manifests(found(entry(fields, operation), last_applied=applied))
    assert manifests.declare(NAME, "u1.small") in (True, False)
    if operation != "Apply":
        assert manifests.declare(NAME, "u1.small") == (_at(applied, NAME) == "u1.small")


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for segment in path:
        value = value.get(segment) if isinstance(value, dict) else None
    return value
