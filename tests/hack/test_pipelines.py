"""The pipelines of GitHub and GitLab: they are valid YAML, and call existing commands."""

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
from hack.release.version import notes

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / ".github/workflows").iterdir())
RELEASES = [".github/workflows/release.yaml", ".gitlab-ci.yml"]
PIPELINES = [*WORKFLOWS, ".gitlab-ci.yml"]


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
            for found in re.findall(r"(?:cosign|skopeo copy|buildah push|helm)[a-z -]*", "\n".join(scripts(one)))
        }
        for one in RELEASES
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
    assert {"checks", "node", "build", "sign"} < jobs
    assert not jobs & {*keywords, "default", "workflow", "pages", "true", "false", "nil"}


@pytest.mark.parametrize("pipeline", RELEASES)
def test_who_signs_has_logged_in_to_the_registry(pipeline: str) -> None:
    (signing,) = (step for step in _steps(pipeline) if "cosign sign " in step)
    assert re.search(r"cosign login .*cosign sign ", signing, re.DOTALL)


def _steps(pipeline: str) -> list[str]:
    """What runs with one environment: a step of GitHub, a job of GitLab."""
    jobs = _jobs(pipeline).values()
    steps = [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]
    return steps + ["\n".join(job["script"]) for job in jobs if "script" in job]


@pytest.mark.parametrize("pipeline", RELEASES)
def test_a_release_is_tested_on_a_node_and_scanned_before_it_is_signed(pipeline: str) -> None:
    text = (ROOT / pipeline).read_text()
    checks = (ROOT / ".github/workflows/ci.yaml").read_text() if "./.github/workflows/ci.yaml" in text else text
    assert {"make e2e-node", "make bounds", ".ci/run"} <= set(re.findall(r"make [a-z0-9-]+|\.ci/run", checks))
    assert re.search(r"files/image\.cdx\.json.*cosign sign ", text, re.DOTALL)
    assert "fail-build: true" in text or "--fail-on" in text


def _jobs(pipeline: str) -> dict[str, dict[str, Any]]:
    """The jobs of a pipeline by name."""
    content = yaml.safe_load((ROOT / pipeline).read_text())
    found: dict[str, Any] = content.get("jobs", content)
    return {
        name: job for name, job in found.items() if isinstance(job, dict) and {"steps", "script", "uses"} & set(job)
    }


def _has_rights(pipeline: str, name: str) -> bool:
    """Whether a job may sign, write to the repository, or read a secret."""
    job = _jobs(pipeline)[name]
    rights = {"permissions": job.get("permissions", {}), "id_tokens": job.get("id_tokens", {})}
    return "write" in rights["permissions"].values() or bool(rights["id_tokens"]) or "secrets." in str(job)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_an_action_is_named_by_its_commit_and_a_person_reads_its_version(workflow: str) -> None:
    """A tag can be moved to another commit, which then runs with the rights of the job."""
    used = re.findall(r"uses: (.*)", (ROOT / workflow).read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\S+", one)] == []


def test_one_version_of_an_action_is_used() -> None:
    used = {use for one in WORKFLOWS for use in re.findall(r"uses: ([\w-]+/.*)", (ROOT / one).read_text())}
    names = [use.partition("@")[0] for use in used]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_job_with_rights_runs_no_code_of_the_repository_or_its_dependencies(pipeline: str) -> None:
    """A dependency that was taken over could else sign a release, or write one."""
    with_rights = [name for name in _jobs(pipeline) if _has_rights(pipeline, name)]

    assert with_rights == {"release.yaml": ["sign"], "renew.yaml": ["propose"], ".gitlab-ci.yml": ["sign"]}.get(
        Path(pipeline).name, []
    )
    for name in with_rights:
        job = _jobs(pipeline)[name]
        runs = "\n".join([step.get("run", "") for step in job.get("steps", ())] + job.get("script", []))
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

    rules = [rule for rule in configuration["packageRules"] if rule.get("enabled")]
    named = {package for rule in rules for package in rule["matchPackageNames"]}
    bundles = [CONTROL_PLANE, *ALONE, *kubevirt_releases().values(), *map(older_control_plane, older_versions())]
    built = {part.requires for bundle in bundles for part in bundle.parts}
    (own,) = (ROOT / "bench").rglob("go.mod")
    measured = set(re.findall(r"^\t(\S+) v\S+$", own.read_text(), re.MULTILINE))
    assert {one for one in built | measured if not one.startswith(("k8s.io/", "golang.org/x/"))} <= named
    assert "k8s.io/**" in named
    # An older control plane is there to be old.
    held = [
        rule for rule in configuration["packageRules"] if "hack/controlplane/k8s-*/**" in rule.get("matchFileNames", ())
    ]
    assert [(rule["enabled"], rule["matchUpdateTypes"]) for rule in held] == [(False, ["major", "minor"])]


def test_the_locks_are_renewed_on_a_schedule() -> None:
    content = yaml.safe_load((ROOT / ".github/workflows/renew.yaml").read_text())
    # PyYAML reads the key "on" as a boolean, as YAML 1.1 does.
    assert "schedule" in content[True]
    # Without it, uv keeps each version that is in the file already.
    assert re.search(r"make lock .*LOCK=--upgrade", "\n".join(scripts(".github/workflows/renew.yaml")))


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
