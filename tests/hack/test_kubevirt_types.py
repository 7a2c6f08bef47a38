"""What is written of KubeVirt's types is what would be written now, and every release's rules have its own types."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from hack import kubevirt_types
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import List, Map, OrNull, Scalar, Shape, Struct
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of

NAMES = {id(value): name for name, value in vars(structs).items() if isinstance(value, Scalar | structs.Free)}


def test_the_modules_are_what_the_data_says() -> None:
    assert [file.name for file in kubevirt_types.outdated()] == [], "run python -m hack.kubevirt_types"


def parts(shape: Shape, path: str = "") -> Iterator[tuple[str, str]]:
    """All that a shape consists of, by path."""
    if isinstance(shape, OrNull):
        yield f"{path} or null", ""
        yield from parts(shape.shape, path)
    elif isinstance(shape, List):
        yield path, f"a list of at most {shape.limit}"
        yield from parts(shape.item, f"{path}[]")
    elif isinstance(shape, Map):
        yield from parts(shape.item, f"{path}{{}}")
    elif isinstance(shape, Struct):
        yield path, f"{type(shape).__name__}{', left out' if shape.left_out else ''}"
        for name, field in shape.fields.items():
            yield from parts(field, f"{path}.{name}")
    else:
        yield path, NAMES[id(shape)]


# Statuses are what a release writes, and none writes what it does not have.
NEWER = {"VMI": {".status.memory.memoryOverhead"}}


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
def test_the_rules_of_a_release_have_its_types(version: Version) -> None:
    """Those of the newest release with what older ones lack (the table) and write otherwise (capabilities)."""
    generated, rules = ModuleType("generated"), rules_of(release_of(version))
    exec(compile(kubevirt_types.core_module(version), "generated", "exec"), vars(generated))

    for name in ("VM", "VMI", "INSTANCETYPE", "PREFERENCE"):
        shown, used = dict(parts(getattr(generated, name))), dict(parts(getattr(rules, name.lower())))
        assert len(used) > 60
        for path in NEWER.get(name, set()):
            shown.setdefault(path, used[path])
        assert used == shown


def test_each_override_is_of_a_field_that_there_is() -> None:
    found = kubevirt_types.types_of(SUPPORTED_VERSIONS[-1]).structs
    paths = {f"{struct}.{field.name}" for struct, fields in found.items() for field in fields}
    assert set(kubevirt_types.OVERRIDES) <= {*found, *paths}
    for struct, override in kubevirt_types.OVERRIDES.items():
        assert set(override.only or ()) <= {field.name for field in found.get(struct, ())}
