"""Every input of the corpus, with every run of the tests: what once broke a promise holds for good; and new inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.fuzz.__main__ import CORPUS, Fuzzer, inputs
from webhook.policies.registry import ENDPOINTS

_FILES = [(target, file) for target in targets.TARGETS for file in inputs(CORPUS, target)]


@pytest.mark.control("malformed-reviews")
@pytest.mark.parametrize(("target", "file"), _FILES, ids=[f"{target}/{file.name}" for target, file in _FILES])
def test_no_input_of_the_corpus_breaks_a_promise(target: str, file: Path) -> None:
    assert targets.TARGETS[target](file.read_bytes())


@pytest.mark.control("absurd-sizes")
@pytest.mark.parametrize("file", inputs(CORPUS, "reviews"), ids=lambda file: file.name)
def test_the_work_for_a_review_is_bounded_by_its_bytes(file: Path) -> None:
    assert targets.reviews(file.read_bytes(), counted=True)


def test_every_endpoint_decides_something_in_the_corpus() -> None:
    """Else the mutations of it would seldom get past the first line of a policy."""
    seen = {word for file in inputs(CORPUS, "reviews") for word in targets.reviews(file.read_bytes()).split()}
    decided = {word.partition("=")[0] for word in seen if "/skipped/" not in word and "/error/" not in word}
    missing = sorted({endpoint.path for endpoint in ENDPOINTS} - decided)
    assert missing == [], (
        f"add reviews that {', '.join(missing)} decides to tests/fuzz/corpus/reviews; for a policy that validates"
        " annotations, its label and an annotation in namespace-annotations.json there"
    )
    assert {word.split("/")[-1] for word in seen} >= {"patch", "warnings", "status", ""}


@pytest.mark.control("malformed-reviews")
def test_some_hundred_inputs_hold() -> None:
    run = Fuzzer(CORPUS, 3, sorted(targets.TARGETS))
    for _ in range(150):
        assert run.step() is None
