from __future__ import annotations

from functools import cache

import pytest

from tests.vectors.__main__ import failures
from tests.vectors.cases import VectorCase, read
from tests.vectors.files import DATA, FILE, VERSIONS
from tests.vectors.stages import STAGES
from webhook.releases.version import KNOWN

FILES = (FILE, DATA / "corners.jsonl.gz", *VERSIONS)


@cache
def results() -> list[tuple[VectorCase, dict[str, list[str]]]]:
    return [(case, failures(case)) for file in FILES for case in read(file)]


@pytest.mark.parametrize("stage", STAGES)
def test_kubevirts_own_answers(stage: str) -> None:
    wrong = {case.id: found[stage] for case, found in results() if stage in found}

    assert any(stage in case.expected for case, _ in results())
    assert not wrong


def test_every_known_release_has_answered() -> None:
    answered = {case.rules.release.version for case, _ in results() if "kubevirtVersion" in case.given}

    assert answered == set(KNOWN)
