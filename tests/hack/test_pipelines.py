"""The pipelines of GitHub and GitLab: they are valid YAML, and call existing commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.release.__main__ import main
from hack.release.version import notes

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = [".github/workflows/ci.yaml", ".github/workflows/release.yaml", ".gitlab-ci.yml"]


def scripts(pipeline: str) -> list[str]:
    """All that a pipeline runs."""

    def within(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value[key] for key in ("run", "script") if key in value]
            lines = [line for one in own for line in ([one] if isinstance(one, str) else one)]
            return lines + [line for one in value.values() for line in within(one)]
        return [line for one in value for line in within(one)] if isinstance(value, list) else []

    return within(yaml.safe_load((ROOT / pipeline).read_text()))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_runs_what_there_is(pipeline: str) -> None:
    text = "\n".join(scripts(pipeline))
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", text)) <= targets
    assert ".ci/run" in text or "make release" in text
    options = set(re.findall(r"(--(?:image|archive|source|builder|output))\b", text))
    # Else they would end the program before it looks at the version.
    assert main(["no-version", *(f"{option}=x" for option in options)]) == 2


def test_both_pipelines_make_the_same_release() -> None:
    commands = [
        {
            re.sub(r"\s+", " ", found)
            for found in re.findall(r"(?:cosign|skopeo copy|buildah push)[a-z -]*", "\n".join(scripts(one)))
        }
        for one in PIPELINES[1:]
    ]

    assert commands[0] == commands[1]


def test_pipelines_name_no_registry() -> None:
    for pipeline in PIPELINES:
        assert not re.search(r"\b[a-z0-9-]+\.(?:io|com|org|dev)/", (ROOT / pipeline).read_text())


def test_the_changelog_of_a_release_can_be_shown() -> None:
    assert notes("## [1.0.0] - 2026-01-01\n\nText\n", "1.0.0") == "Text\n"


@pytest.mark.parametrize("arguments", [["v1"], ["1.2"], [""]])
def test_mistakes_are_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("release: ")
    assert said.count("\n") == 1
