"""The installed packages are the locked ones, byte for byte."""

from __future__ import annotations

import ast
import importlib.metadata
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hack import lock
from hack.release.image import left_out

ROOT = Path(__file__).parents[1]
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)

LOCKS = {
    "requirements.lock": 20,
    "requirements-dev.lock": 20,
    "requirements-image.lock": 20,
    "requirements-build.lock": 3,
    "requirements-traces.lock": 10,
    "requirements-docs.lock": 20,
}


@pytest.mark.control("replaced-dependencies")
@pytest.mark.parametrize("name", list(LOCKS))
def test_every_dependency_has_a_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    found = {match["name"]: match["rest"].count("--hash=sha256:") for match in _REQUIREMENT.finditer(text)}
    assert len(found) > LOCKS[name]
    assert {name for name, hashes in found.items() if not hashes} == set()
    # Nothing else stands in it: no address, no file, no option that would loosen it.
    rest = re.sub(r"^\s*#.*$", "", _REQUIREMENT.sub("", text), flags=re.MULTILINE)
    assert rest.strip() == ""


def _versions(name: str) -> dict[str, str]:
    text = (ROOT / f"requirements-{name}.lock").read_text()
    return {match["name"]: match["version"] for match in _REQUIREMENT.finditer(text)}


def test_the_locks_of_the_image_are_parts_of_the_others() -> None:
    """Nothing is in the image that the tests did not run with."""
    whole, dev = ((ROOT / f"requirements{name}.lock").read_text() for name in ("", "-dev"))
    parts = {"image": lock.image_part(whole), "build": lock.build_part(dev), "traces": lock.traces_part(dev)}
    for name, part in parts.items():
        assert (ROOT / f"requirements-{name}.lock").read_text() == part, "run python hack/lock.py --parts"


def test_the_image_with_traces_has_all_that_opentelemetry_needs() -> None:
    traces, image = _versions("traces"), _versions("image")
    needed = {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "protobuf", "requests", "urllib3"}
    assert needed <= traces.keys()
    # pip installs both files at once, so what is in both has one version.
    both = traces.keys() & image
    assert {name: traces[name] for name in both} == {name: image[name] for name in both}
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "${TRACES:+--require-hashes -r requirements-traces.lock}" in dockerfile
    assert all(file in dockerfile for file in lock.IN_IMAGE)


def test_a_lock_of_the_image_is_resolved_for_each_of_its_platforms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not only for the one on which `make lock` runs: a package without a wheel for arm64 ends it."""
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncase "$*" in *aarch64*) exit $MISSING;; esac\n')
    uv.chmod(0o755)
    monkeypatch.setenv("MISSING", "0")
    lock.check_platforms(str(uv))
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {(platform, file) for platform in lock.PLATFORMS for file in lock.IN_IMAGE} == {
        (re.findall(r"--python-platform=(\S+)", line)[0], line.split()[-1]) for line in asked
    }
    assert {platform.partition("-")[0] for platform in lock.PLATFORMS} == {"x86_64", "aarch64"}
    assert all("--no-build" in line for line in asked)

    monkeypatch.setenv("MISSING", "1")
    with pytest.raises(subprocess.CalledProcessError):
        lock.check_platforms(str(uv))


def test_the_image_the_wheel_and_the_documentation_have_what_they_need_and_nothing_else() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    image = _versions("image").keys()
    assert {each.partition(">=")[0].lower() for each in required} <= image
    # Their own dependencies are gone with them; shared ones are still there.
    assert not {*lock.NOT_IN_IMAGE, "mdurl"} & image
    assert {"aiohttp", "pyyaml", "multidict"} <= image
    build, docs = _versions("build").keys(), _versions("docs").keys()
    assert "hatchling" in build
    assert not {"pytest", "mypy", "ruff", "hypothesis", "coverage"} & build
    assert {"mkdocs-material", "mike"} <= docs
    assert not {"aiohttp", "pytest"} & docs


@pytest.mark.control("replaced-dependencies")
def test_whatever_installs_checks_the_hashes() -> None:
    for name in ("Makefile", "Dockerfile"):
        lines = [line for line in (ROOT / name).read_text().splitlines() if "-r requirements" in line]
        assert lines, name
        assert all("--require-hashes" in line for line in lines), name


def _megabytes(name: str) -> float:
    """The size of the installed files of a package, without bytecode."""
    files = importlib.metadata.distribution(name).files or ()
    return sum(file.size or 0 for file in files if "__pycache__" not in file.parts) / 1e6


def _are_locked() -> bool:
    """Whether this environment has the locked versions: that of `make bounds` has others."""
    installed = {one.name.lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}
    return all(installed.get(name) == locked for name, locked in _versions("image").items())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the page has the sizes for x86-64")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the page has the sizes for the interpreters before 3.14")
@pytest.mark.skipif(not _are_locked(), reason="the page has the sizes of the locked versions")
def test_the_sizes_on_the_page_are_those_of_what_is_installed() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    rows = re.findall(r"^\| ([A-Za-z0-9, -]+) \| (\d+\.\d) \|", page, re.MULTILINE)
    assert len(rows) == 32
    for names, size in rows:
        # Wheels of one version differ between interpreters.
        assert float(size) == pytest.approx(sum(map(_megabytes, names.split(", "))), rel=0.1, abs=0.15), names

    image, traces = ({*_versions(name)} for name in ("image", "traces"))
    written = re.search(r"The (\d+) packages of \S+ are ([\d.]+) MB; \S+ adds (\d+) packages with ([\d.]+) MB", page)
    assert written
    assert (int(written[1]), int(written[3])) == (len(image), len(traces - image))
    for size, names in ((written[2], image), (written[4], traces - image)):
        assert float(size) == pytest.approx(sum(map(_megabytes, names)), rel=0.1)
    wheels = [importlib.metadata.distribution(name).read_text("WHEEL") or "" for name in image]
    compiled = [wheel for wheel in wheels if "Root-Is-Purelib: false" in wheel]
    installation = (ROOT / "docs" / "installation.md").read_text()
    assert re.findall(r"the (\d+) packages", installation) == [f"{len(image)}"] * 2
    assert re.findall(r"(\d+) of them have machine code", installation) == [f"{len(compiled)}"]


# What metadata without an SPDX expression say, as SPDX has it. "BSD License" is none of its names: there are several.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
}


def _licenses(name: str) -> str:
    """The licenses of a package, as its metadata say."""
    metadata = importlib.metadata.distribution(name).metadata
    fields: dict[str, list[str]] = {name: metadata.get_all(name) or [] for name in ("License-Expression", "License")}
    if fields["License-Expression"]:
        return fields["License-Expression"][0]
    classified = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License" in each]
    found = classified or fields["License"]
    return ", ".join(_SPDX.get(each, each) for each in found)


@pytest.mark.skipif(not _are_locked(), reason="the page has the licenses of the locked versions")
def test_the_page_has_the_license_of_each_package_of_the_image() -> None:
    expected = dict[str, list[str]]()
    for name in sorted({*_versions("image"), *_versions("traces")}):
        expected.setdefault(_licenses(name), []).append(name)
    _, _, section = (ROOT / "docs" / "dependencies.md").read_text().partition("\n## Licenses\n")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    assert rows[0] == ("license", "packages")
    assert rows[1:] == sorted((under, ", ".join(names)) for under, names in expected.items())


def test_each_dependency_is_named_on_the_page_and_what_is_own_has_its_lines() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text().partition("\n## Licenses\n")[0]
    named = {
        name for names in re.findall(r"^\| ([A-Za-z0-9, -]+) \|", page, re.MULTILINE) for name in names.split(", ")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    about = project["project"]
    groups = (about["dependencies"], *about["optional-dependencies"].values(), *project["dependency-groups"].values())
    required = {re.split(r"[\[>]", each)[0] for group in groups for each in group}
    assert len(required) > 35
    assert required ^ named == {"own", "package"}

    for places, lines in re.findall(r"^\| (`[^|]+`) \| (\d+) \|", page, re.MULTILINE):
        roots = [ROOT / place for place in re.findall("`([^`]+)`", places)]
        files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py"))]
        assert int(lines) == pytest.approx(sum(len(file.read_text().splitlines()) for file in files), rel=0.15), places
    assert f"with {len(_versions('docs'))} packages" in page


def test_what_is_imported_is_required() -> None:
    """And isn't there by way of another package alone, which may let go of it."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = (*about["dependencies"], *(each for extra in about["optional-dependencies"].values() for each in extra))
    required = {re.split(r"[\[>]", each)[0].lower() for each in given}
    imported = set[str]()
    for file in (file for root in ("webhook", "certs") for file in (ROOT / root).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    providers = importlib.metadata.packages_distributions()
    foreign = imported - sys.stdlib_module_names - {"webhook", "certs"}
    assert {"aiohttp", "yaml", "jsonpointer"} <= foreign
    by = {name: {each.lower().replace("_", "-") for each in providers.get(name, ())} for name in foreign}
    assert {name for name, distributions in by.items() if not distributions & required} == set()


def test_pip_check_names_what_the_page_says_and_nothing_else() -> None:
    """Of the packages of the image: what is asked for without a condition, and is not there."""
    image = {*_versions("image")}
    missing = left_out({name: importlib.metadata.requires(name) or () for name in image | {"kubevirt-webhook"}})
    page = (ROOT / "docs" / "dependencies.md").read_text()
    (named,) = re.findall(r"names two missing packages, (\S+) and (\S+) \(", page)
    assert missing == {"rich": [*named]}
    assert {*named} == {*lock.NOT_IN_IMAGE}
