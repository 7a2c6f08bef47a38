"""Tools of CI and of builds, each on a machine that a test makes: they run, and say what is found or missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hack import audit, interpreters, suite
from hack.controlplane import build, bundles
from hack.controlplane.build import location
from hack.controlplane.bundles import CONTROL_PLANE, HELM
from hack.gate import Gate
from hack.guests.gate import GATE as GUESTS
from hack.image import base
from hack.node import requirements
from hack.node.gate import GATE as NODE
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, parse_version

ROOT = Path(__file__).parents[2]
CLEAN = {"name": "aiohttp", "version": "1.0", "vulns": []}
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found"}
BAD = {"name": "aiohttp", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2"}]}


def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, *packages: Any) -> int:
    """The exit status of the audit beside a pip-audit that has this one, the only program there is."""
    program = tmp_path / "pip-audit"
    said = json.dumps({"dependencies": packages, "fixes": []})
    program.write_text(f"#!{sys.executable}\nprint({said!r})\nraise SystemExit({status})\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    return audit.main()


@pytest.mark.control("replaced-dependencies")
def test_what_is_known_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(tmp_path, monkeypatch, 0, CLEAN, SKIPPED) == 0
    assert capsys.readouterr().out == (
        "audit: no known vulnerabilities in requirements.lock and requirements-dev.lock; "
        "the database does not know yarl\n"
    )
    assert audited(tmp_path, monkeypatch, 1, CLEAN, BAD) == 1
    assert capsys.readouterr().err.splitlines() == [
        "audit: aiohttp 1.0 has PYSEC-1, fixed in 1.1",
        "audit: aiohttp 1.0 has PYSEC-2, fixed in no version yet",
    ]


def test_the_interpreters_of_the_image_and_of_this_run_are_supported() -> None:
    images = re.findall(r"python:(3\.\d+)", (ROOT / "Dockerfile").read_text())
    assert images
    assert {*images, "{}.{}".format(*sys.version_info[:2])} <= set(interpreters.supported())


def test_the_releases_of_kubevirt_that_can_be_built() -> None:
    releases = bundles.kubevirt_releases()
    assert next(iter(releases)) == str(SUPPORTED_VERSIONS[-1])
    # The behavior of each release is known; of some lines only an early patch release can be had as a module.
    lines = {release.line for release in map(parse_version, releases) if release}
    assert lines == {version.line for version in SUPPORTED_VERSIONS}
    # Each has a directory of its own in the cache.
    places = {build.location({}, Path("/cache"), bundle) for bundle in releases.values()}
    assert len(places) == len(releases) > 1


def test_what_a_node_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, word in (("darwin", "Linux"), ("linux", "root")):
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert word in requirements.missing()
        assert "\n" not in requirements.missing()


BOTH = pytest.mark.parametrize("gate", [NODE, GUESTS], ids=lambda gate: gate.name)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Gate, dict[str, str]]]:
    """A gate on a machine that lacks nothing and has its parts, and the environment of that machine."""

    def make(gate: Gate, status: int = 0) -> tuple[Gate, dict[str, str]]:
        monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path)}
        for bundle in gate.bundles:
            build.location(environ, bundle=bundle).mkdir(parents=True)
        gate.image(environ, gate.place(environ)).mkdir(parents=True)
        return replace(gate, missing=lambda _: "", run=lambda _: status), environ

    return make


@BOTH
def test_what_a_gate_is_about_exists(gate: Gate) -> None:
    tests = [name.partition("::") for name in gate.tests]
    assert [name for name in (*gate.sources, *(file for file, _, _ in tests)) if not (ROOT / name).exists()] == []
    assert all(f"def {test}(" in (ROOT / file).read_text() for file, _, test in tests if test)
    assert f"{gate.target.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()


@BOTH
def test_a_gate_opens_where_the_parts_are_and_these_sources_have_not_passed(
    gate: Gate, ready: Callable[..., tuple[Gate, dict[str, str]]]
) -> None:
    gate, environ = ready(gate)
    assert gate.reason_to_skip(environ, "these") == ""
    gate.mark(environ).write_text("these")
    assert "has passed here" in gate.reason_to_skip(environ, "these")
    assert gate.reason_to_skip(environ, "others") == ""
    gate.image(environ, gate.place(environ)).rmdir()
    reason = gate.reason_to_skip(environ, "others")
    assert reason.startswith("skipped: ") and f"{gate.target} builds them" in reason and "\n" not in reason


@pytest.mark.parametrize(("status", "result", "is_marked"), [(0, 0, True), (1, 1, False), (69, 0, False)])
def test_only_what_has_passed_is_not_run_again(
    status: int, result: int, is_marked: bool, ready: Callable[..., tuple[Gate, dict[str, str]]], capsys: Any
) -> None:
    gate, environ = ready(NODE, status)
    assert (gate.main(), gate.mark(environ).exists()) == (result, is_marked)
    skipped = "node: skipped: this machine could not start a node; the line above says why\n"
    assert capsys.readouterr().out == (skipped if status == 69 else "")


# Prints the modules of the program that cannot be imported in the image.
def test_the_dockerfile_has_one_pinned_base_and_what_the_build_reads() -> None:
    text = (ROOT / "Dockerfile").read_text()
    name, digest = base.pinned(text)

    assert name.startswith("python:3.")
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest), "not pinned: run make base-image"
    stages = [line for line in text.splitlines() if line.startswith("FROM ")]
    assert stages == ["FROM ${BASE} AS build", "FROM scratch"]
    assert "requirements-dev" not in text
    assert not {"apt-get", "gcc", "curl"} & set(text.split())
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for file in ("requirements-image.lock", "requirements-build.lock", "hack/image/assemble.py"):
        assert file in text
        assert (ROOT / file).exists()
        assert file not in ignored


def test_assembling_needs_nothing_but_the_standard_library() -> None:
    """It runs in the build stage, where this project is not installed."""
    program = str(ROOT / "hack" / "image" / "assemble.py")
    command = [sys.executable, "-I", "-S", program, "--compile", "/nowhere"]
    assert b"ModuleNotFoundError" not in subprocess.run(command, check=False, capture_output=True).stderr


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the suite runs, in its order; pytest reports one test that was skipped, and one that is expected to fail."""
    commands: list[str] = []
    report = (
        '<testsuites><testsuite><testcase><skipped type="pytest.skip" message="no Go"/></testcase>'
        '<testcase><skipped type="pytest.xfail" message="known"/></testcase></testsuite></testsuites>'
    )

    def run(command: list[str]) -> int:
        commands.append(" ".join(command[1:]))
        for word in command:
            if word.startswith("--junitxml="):
                Path(word.partition("=")[2]).write_text(report)
        return 0

    monkeypatch.setattr(suite, "_run", run)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    return commands


def test_what_needs_no_control_plane_runs_while_one_is_built(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def build(of: suite.Building) -> None:
        of.log.write_text("built\n")
        ran.append("built")

    monkeypatch.setattr(suite, "missing", lambda _: [CONTROL_PLANE])
    monkeypatch.setattr(suite.Building, "run", build)

    assert suite.main(["tests/k8s"]) == 0

    parts = [one.partition(" -m ")[2] for one in ran if " pytest " in one]
    assert [("not e2e" in part, part.endswith(" tests/k8s")) for part in parts] == [(True, True), (False, True)]
    assert ran.index("built") < next(at for at, one in enumerate(ran) if "(e2e or page)" in one)
    said = capfd.readouterr().out
    assert "building once, beside the tests that need no control plane: Kubernetes control plane (about " in said
    assert "\ntest: skipped 2: no Go\ntest: 2 tests skipped; " in said


def test_where_all_is_built_the_tests_run_at_once(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "missing", lambda _: [])

    assert suite.main([]) == 0

    (tests,) = (one for one in ran if " pytest " in one)
    assert "-m not kubevirt --junitxml" in tests
    assert sum("coverage report" in one for one in ran) == 2


def test_what_go_could_build_and_is_there_is_not_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path), "PATH": str(tmp_path)}
    assert suite.missing(environ) == []
    (tmp_path / "go").touch(0o755)
    assert suite.missing(environ) == [CONTROL_PLANE, HELM]
    location(environ, bundle=HELM).mkdir(parents=True)
    assert suite.missing(environ) == [CONTROL_PLANE]
