"""Defaults at UPDATE: whatever an owner writes, in whatever way, makes the VM that it would make anew."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, Written, manifest_of
from tests.policies.instancetypes.api_server import ApiServer, Refused

CHOICES: Any = st.fixed_dictionaries({part: st.sampled_from(options) for part, options in OPTIONS.items()})


def written(server: ApiServer, way: str, after: Json, before: Json | None = None) -> Json | None:
    try:
        return server.write(way, after, before)
    except Refused:
        return None


@given(
    first=CHOICES,
    second=CHOICES,
    way=st.sampled_from(WAYS),
    defaults=st.sampled_from([CLUSTER_WIDE, OF_THE_NAMESPACE]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(
    first: Json, second: Json, way: str, defaults: tuple[str, str], scope: str
) -> None:
    server = ApiServer(default_instancetype=defaults[0], default_preference=defaults[1], preference_scope=scope)
    before, after = manifest_of(first), manifest_of(second)
    there = written(server, way, before)
    if there is None:
        return

    stored = written(server, way, after, before)
    created = written(server, way, manifest_of(second, "new"))

    assert list(Written(way, after, there, stored, created).surprises()) == []
