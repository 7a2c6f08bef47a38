"""The definitions of KubeVirt's releases that the package holds."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, UNRELEASED, Version
from webhook.kubevirt.releases.schemas import kinds_of

KINDS = (fields.VMI, fields.VIRTUAL_MACHINE, fields.INSTANCETYPE, fields.CLUSTER_PREFERENCE)


def has(schema: Any, path: str) -> bool:
    for step in path.split("."):
        while "items" in schema:
            schema = schema["items"]
        schema = schema.get("properties", {}).get(step)
        if schema is None:
            return False
    return True


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
def test_the_definitions_have_the_fields_that_the_tables_say(version: Version) -> None:
    schemas = {each.kind: each.schema["properties"]["spec"] for each in kinds_of(version)}
    for kind in KINDS:
        for path, field in fields.table(kind):
            assert has(schemas[kind], path) == (version >= field.since), (kind, path)


def test_other_versions_have_those_of_the_nearest_release() -> None:
    newest = SUPPORTED_VERSIONS[-1]
    assert kinds_of(UNRELEASED) == kinds_of(newest) == kinds_of(newest._replace(patch=7))
    assert kinds_of(Version(1, 2, 0)) == kinds_of(SUPPORTED_VERSIONS[0])


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
def test_every_kind_is_there_once_for_each_of_its_versions(version: Version) -> None:
    served = [(each.group, each.kind, name) for each in kinds_of(version) for name in each.versions]
    assert len(set(served)) == len(served)
    assert {("kubevirt.io", "VirtualMachine", "v1"), ("kubevirt.io", "VirtualMachine", "v1alpha3")} <= {*served}
    cluster_wide = {each.kind for each in kinds_of(version) if not each.namespaced}
    assert "MigrationPolicy" in cluster_wide
