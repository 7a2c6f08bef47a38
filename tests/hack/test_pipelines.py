"""The pipelines of GitHub and GitLab: they call existing commands, and what may sign runs nothing else."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.bundles import ALONE, CONTROL_PLANE, kubevirt_releases, older_control_plane, older_versions
from hack.release.__main__ import main, without_credentials

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / ".github/workflows").iterdir())
RELEASES = [".github/workflows/release.yaml", ".gitlab-ci.yml"]
PIPELINES = [*WORKFLOWS, ".gitlab-ci.yml"]
each_pipeline = pytest.mark.parametrize("pipeline", PIPELINES)


def jobs_of(pipeline: str) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load((ROOT / pipeline).read_text())
    found: dict[str, Any] = content.get("jobs", content)
    return {
        name: job for name, job in found.items() if isinstance(job, dict) and {"steps", "script", "uses"} & set(job)
    }


def scripts(job: dict[str, Any]) -> list[str]:
    """What a job runs: a step of GitHub each, and all of a job of GitLab."""
    return [step["run"] for step in job.get("steps", ()) if "run" in step] + (
        ["\n".join(job["script"])] if "script" in job else []
    )


def all_scripts(pipeline: str) -> list[str]:
    return [script for job in jobs_of(pipeline).values() for script in scripts(job)]


@each_pipeline
def test_a_pipeline_runs_what_there_is(pipeline: str) -> None:
    text = "\n".join(all_scripts(pipeline))
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", text)) <= targets
    options = set(re.findall(r"(--(?:image|archive|source|builder|output))\b", text))
    # Else they would end the program before it looks at the version.
    assert main(["no-version", *(f"{option}=x" for option in options)]) == 2
    for script in all_scripts(pipeline):
        # The expressions of GitHub are replaced before a shell reads the script.
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        done = subprocess.run(["bash", "-n"], input=plain, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), script
    assert not re.search(r"\b[a-z0-9-]+\.(?:io|com|org|dev)/", (ROOT / pipeline).read_text()), "it names a registry"


def test_both_pipelines_make_the_same_release() -> None:
    words = r"(?:cosign|skopeo copy|buildah push|helm)[a-z -]*"
    github, gitlab = (
        {re.sub(r"\s+", " ", found) for found in re.findall(words, "\n".join(all_scripts(one)))} for one in RELEASES
    )

    assert github == gitlab


@pytest.mark.parametrize("pipeline", RELEASES)
def test_a_release_is_tested_on_a_node_and_scanned_before_it_is_signed(pipeline: str) -> None:
    text = (ROOT / pipeline).read_text()
    checks = (ROOT / ".github/workflows/ci.yaml").read_text() if "./.github/workflows/ci.yaml" in text else text
    assert {"make e2e-node", "make bounds", ".ci/run"} <= set(re.findall(r"make [a-z0-9-]+|\.ci/run", checks))
    assert re.search(r"files/image\.cdx\.json.*cosign sign ", text, re.DOTALL)
    assert "fail-build: true" in text or "--fail-on" in text
    (signing,) = (script for script in all_scripts(pipeline) if "cosign sign " in script)
    assert re.search(r"cosign login .*cosign sign ", signing, re.DOTALL)


def has_rights(job: dict[str, Any]) -> bool:
    """Whether a job may sign, write to the repository, or read a secret."""
    return "write" in job.get("permissions", {}).values() or bool(job.get("id_tokens")) or "secrets." in str(job)


def test_an_action_is_named_by_its_commit_and_a_person_reads_its_version() -> None:
    """A tag can be moved to another commit, which then runs with the rights of the job."""
    used = {use for one in WORKFLOWS for use in re.findall(r"uses: (.*)", (ROOT / one).read_text())}
    pinned = [one for one in used if re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)]

    assert pinned
    assert [one for one in used if one not in pinned and not re.fullmatch(r"\./\S+", one)] == []
    names = [use.partition("@")[0] for use in pinned]
    assert sorted(names) == sorted(set(names)), "one version of each"


@each_pipeline
def test_a_job_with_rights_runs_no_code_of_the_repository_or_its_dependencies(pipeline: str) -> None:
    """A dependency that was taken over could else sign a release, or write one."""
    with_rights = {name: job for name, job in jobs_of(pipeline).items() if has_rights(job)}

    expected = {"release.yaml": ["sign"], "renew.yaml": ["propose"], ".gitlab-ci.yml": ["sign"]}
    assert [*with_rights] == expected.get(Path(pipeline).name, [])
    for name, job in with_rights.items():
        runs = "\n".join(scripts(job))
        assert not re.search(r"\b(?:make|python\d?|pip|pipx|uvx?|npm|go|sh|bash|sudo)\b|\./|\.ci/", runs), name
        used = [step["uses"].partition("@")[0] for step in job.get("steps", ()) if "uses" in step]
        assert set(used) <= {"actions/download-artifact", "sigstore/cosign-installer", "actions/checkout"}, name
        # Where something is signed, nothing of the repository is even there.
        assert "cosign" not in runs or ("actions/checkout" not in used and "files" in runs)
        assert "steps" in job or job["variables"]["GIT_STRATEGY"] == "none"


def test_the_updater_knows_every_action_the_base_and_all_that_the_tests_build() -> None:
    """A pin without an updater keeps its version, with all faults that are found in it."""
    configuration = json.loads((ROOT / "renovate.json").read_text())
    assert set(configuration["enabledManagers"]) == {"github-actions", "dockerfile", "gomod"}
    assert {"helpers:pinGitHubActionDigests", "docker:pinDigests"} <= set(configuration["extends"])

    named = {
        name for rule in configuration["packageRules"] if rule.get("enabled") for name in rule["matchPackageNames"]
    }
    bundles = [CONTROL_PLANE, *ALONE, *kubevirt_releases().values(), *map(older_control_plane, older_versions())]
    built = {part.requires for bundle in bundles for part in bundle.parts}
    own = "".join(file.read_text() for file in (ROOT / "bench").rglob("go.mod"))
    measured = set(re.findall(r"^\t(\S+) v\S+$", own, re.MULTILINE))
    assert {one for one in built | measured if not one.startswith(("k8s.io/", "golang.org/x/"))} | {
        "k8s.io/**"
    } <= named
    # An older control plane is there to be old.
    older = "hack/controlplane/k8s-*/**"
    (held,) = (rule for rule in configuration["packageRules"] if older in rule.get("matchFileNames", ()))
    assert (held["enabled"], held["matchUpdateTypes"]) == (False, ["major", "minor"])


def test_the_locks_are_renewed_on_a_schedule() -> None:
    workflow = ".github/workflows/renew.yaml"
    # PyYAML reads the key "on" as a boolean, as YAML 1.1 does.
    assert "schedule" in yaml.safe_load((ROOT / workflow).read_text())[True]
    # Without it, uv keeps each version that is in the file already.
    assert re.search(r"make lock .*LOCK=--upgrade", "\n".join(all_scripts(workflow)))


@pytest.mark.control("credentials-in-provenance")
def test_the_provenance_publishes_no_credentials_of_the_clone() -> None:
    assert without_credentials("https://ci-token:secret@git.example/a/b.git") == "https://git.example/a/b.git"
    assert without_credentials("ssh://git@git.example/a/b.git") == "ssh://git.example/a/b.git"
    for address in ("https://git.example/a@b", "git@git.example:a/b.git"):
        assert without_credentials(address) == address
