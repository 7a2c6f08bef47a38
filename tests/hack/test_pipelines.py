"""The pipelines of GitHub and GitLab: they are valid YAML, and call existing commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.release.__main__ import main, without_credentials
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


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_shell_parses_every_script(pipeline: str) -> None:
    # The expressions of GitHub are replaced before a shell reads the script.
    for script in scripts(pipeline):
        done = subprocess.run(
            ["bash", "-n"], input=re.sub(r"\$\{\{.*?\}\}", "x", script), capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), script


def test_both_pipelines_make_the_same_release() -> None:
    commands = [
        {
            re.sub(r"\s+", " ", found)
            for found in re.findall(r"(?:cosign|skopeo copy|buildah push)[a-z -]*", "\n".join(scripts(one)))
        }
        for one in PIPELINES[1:]
    ]

    assert commands[0] == commands[1]


def test_no_job_of_gitlab_has_the_name_of_a_keyword() -> None:
    """GitLab would read its content as that of the keyword, and deny the file."""
    keywords = {
        "image",
        "services",
        "stages",
        "types",
        "before_script",
        "after_script",
        "variables",
        "cache",
        "include",
    }
    content = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text())

    jobs = {name for name, value in content.items() if isinstance(value, dict) and "script" in value}
    assert {"checks", "node", "release"} < jobs
    assert not jobs & {*keywords, "default", "workflow", "pages", "true", "false", "nil"}


@pytest.mark.parametrize("pipeline", PIPELINES[1:])
def test_who_signs_has_logged_in_to_the_registry(pipeline: str) -> None:
    (signing,) = (step for step in _steps(pipeline) if "cosign sign " in step)
    assert re.search(r"cosign login .*cosign sign ", signing, re.DOTALL)


def _steps(pipeline: str) -> list[str]:
    """What runs with one environment: a step of GitHub, a job of GitLab."""
    content = yaml.safe_load((ROOT / pipeline).read_text())
    if "jobs" in content:
        return [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]
    return ["\n".join(job["script"]) for job in content.values() if isinstance(job, dict) and "script" in job]


@pytest.mark.parametrize("pipeline", PIPELINES[1:])
def test_a_release_is_tested_on_a_node_and_scanned_before_it_is_signed(pipeline: str) -> None:
    text = (ROOT / pipeline).read_text()
    assert "make e2e-node" in text
    assert re.search(r"files/image\.cdx\.json.*cosign sign ", text, re.DOTALL)
    assert "fail-build: true" in text or "--fail-on" in text


def test_pipelines_name_no_registry() -> None:
    for pipeline in PIPELINES:
        assert not re.search(r"\b[a-z0-9-]+\.(?:io|com|org|dev)/", (ROOT / pipeline).read_text())


def test_the_changelog_of_a_release_can_be_shown() -> None:
    assert notes("## [1.0.0] - 2026-01-01\n\nText\n", "1.0.0") == "Text\n"


@pytest.mark.parametrize(
    ("address", "published"),
    [
        ("https://ci-token:secret@git.example/a/b.git", "https://git.example/a/b.git"),
        ("ssh://git@git.example/a/b.git", "ssh://git.example/a/b.git"),
        ("https://git.example/a@b", "https://git.example/a@b"),
        ("git@git.example:a/b.git", "git@git.example:a/b.git"),
    ],
)
def test_the_provenance_publishes_no_credentials_of_the_clone(address: str, published: str) -> None:
    assert without_credentials(address) == published


@pytest.mark.parametrize("arguments", [["v1"], ["1.2"], [""], ["9.8.7"]])
def test_mistakes_are_one_sentence(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("release: ")
    assert said.count("\n") == 1
