"""The examples for pipelines: they are what the page shows, and their commands do what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests import builders

ROOT = Path(__file__).parents[1]
PIPELINES = ROOT / "examples" / "pipelines"
PAGE = (ROOT / "docs" / "ci.md").read_text()


def load(name: str) -> Any:
    return yaml.safe_load((PIPELINES / name).read_text())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of manifests, of which one is denied."""
    (tmp_path / "cluster").symlink_to(ROOT / "examples" / "cluster")
    (tmp_path / "settings.yaml").symlink_to(ROOT / "examples" / "settings.yaml")
    (tmp_path / "manifests").mkdir()
    review = yaml.safe_load((ROOT / "examples" / "reviews" / "20-vm-conflicts.yaml").read_text())
    (tmp_path / "manifests" / "denied.yaml").write_text(yaml.safe_dump(review["request"]["object"]))
    (tmp_path / "manifests" / "allowed.yaml").write_text(
        yaml.safe_dump(builders.vm() | {"metadata": {"name": "a", "namespace": "shop"}})
    )
    return tmp_path


def shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-e", "-c", script]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, env={**os.environ, "PATH": path})


@pytest.mark.parametrize("name", sorted(file.name for file in PIPELINES.iterdir()))
def test_the_page_shows_the_example(name: str) -> None:
    assert f"```yaml\n{(PIPELINES / name).read_text()}```" in PAGE


def test_github_actions(repository: Path) -> None:
    steps = load("github-actions.yaml")["jobs"]["review"]["steps"]
    annotate, report = (step["run"] for step in steps if "name" in step)
    annotated = shell(annotate, repository)
    assert annotated.returncode == 1
    assert annotated.stdout.startswith("::error file=manifests/denied.yaml,line=1,")
    assert shell(report, repository).returncode == 0
    (result,) = json.loads((repository / "review.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "instancetype-denied"


def test_gitlab(repository: Path) -> None:
    job = load("gitlab-ci.yaml")["review-virtual-machines"]
    (script,) = job["script"]
    assert shell(script, repository).returncode == 1
    suite = ET.parse(repository / job["artifacts"]["reports"]["junit"]).getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")


def test_tekton(repository: Path) -> None:
    (step,) = load("tekton.yaml")["spec"]["steps"]
    (entrypoint,) = re.findall(r'^ENTRYPOINT \["/app/bin/(.*)"\]$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert shell(shlex.join([entrypoint, *step["args"]]), repository).returncode == 1


def test_the_hook_of_pre_commit(repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    example = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if block.startswith("repos:"))
    (used,) = yaml.safe_load(example)["repos"][0]["hooks"]
    done = shell(f"{hook['entry']} {' '.join(used['args'])} manifests/denied.yaml manifests/allowed.yaml", repository)
    assert (used["id"], done.returncode, done.stdout.count("CREATE")) == (hook["id"], 1, 1)
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    home = {**os.environ, "PRE_COMMIT_HOME": str(repository / "home")}
    subprocess.run(command, check=True, env=home)
