from __future__ import annotations

from functools import cache

import msgspec
import pytest

from tests.vectors.__main__ import failures
from tests.vectors.cases import Json, VectorCase, read
from tests.vectors.files import DATA, FILE, VERSIONS
from tests.vectors.stages import STAGES
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import Struct, decode
from webhook.kubevirt.releases.capabilities import KNOWN

FILES = (FILE, DATA / "corners.jsonl.gz", *VERSIONS)


# What reviews share, by its shape and content.
Shared = dict[tuple[Struct, bytes], Json]


@cache
def evaluated() -> tuple[list[tuple[VectorCase, dict[str, list[str]]]], Shared]:
    """All cases with their failures, and what they shared."""
    shared: Shared = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structs, "_kept", shared)
        patch.setattr(structs, "MAX_OBJECTS", 10_000)
        return [(case, failures(case)) for file in FILES for case in read(file)], shared


def results() -> list[tuple[VectorCase, dict[str, list[str]]]]:
    return evaluated()[0]


@pytest.mark.parametrize("stage", STAGES)
def test_kubevirts_own_answers(stage: str) -> None:
    wrong = {case.id: found[stage] for case, found in results() if stage in found}
    assert any(stage in case.expected for case, _ in results())
    assert not wrong


def test_every_known_release_has_answered() -> None:
    answered = {case.rules.release.version for case, _ in results() if "kubevirtVersion" in case.given}
    assert answered == set(KNOWN)


def test_what_reviews_share_stays_as_it_was_decoded() -> None:
    _, shared = evaluated()
    assert len(shared) > 100
    for (shape, content), value in shared.items():
        assert value == decode(shape, msgspec.msgpack.decode(content))
