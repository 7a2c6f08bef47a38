"""The version of a release in the files that name it, and the cut of the changelog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from hack.reference import labels
from hack.release import ReleaseError
from webhook.settings_file import effective

CHANGELOG: Final = "CHANGELOG.md"
_UNRELEASED: Final = "## [Unreleased]"
# File, and the line with the version.
_PLACES: Final = {
    "pyproject.toml": r'^(version = ")([^"]+)(")$',
    "webhook/__init__.py": r'^(__version__ = ")([^"]+)(")$',
    "charts/kubevirt-webhook/Chart.yaml": r"^((?:appVersion|version): )(\S+)()$",
}
_VERSION: Final = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)((a|b|rc)\d+)?"


def check_version(version: str) -> str:
    """A version that Python, Helm and an image's tag all accept.

    Raises:
        ReleaseError: it is not one.
    """
    if not re.fullmatch(_VERSION, version):
        raise ReleaseError(f'"{version}" is not a valid version; use for example 1.2.0 or 1.2.0rc1')
    return version


def chart_version(version: str) -> str:
    """A version as Helm wants it, for example 1.2.0-rc1."""
    return re.sub(r"(\d)(a|b|rc)(\d+)$", r"\1-\2\3", version)


def versions(root: Path) -> dict[str, set[str]]:
    """The versions that the files of a tree name."""
    return {
        file: {match[2] for match in re.finditer(pattern, (root / file).read_text(), re.MULTILINE)}
        for file, pattern in _PLACES.items()
    }


def expected(version: str) -> dict[str, set[str]]:
    """What `versions` says of a tree of this version."""
    return {file: {chart_version(version) if file.endswith("Chart.yaml") else version} for file in _PLACES}


def cut(changelog: str, version: str, date: str) -> str:
    """The changelog with what was unreleased under a version.

    Args:
        changelog: the content of the file.
        version: the version of the release.
        date: its date, as YYYY-MM-DD.

    Raises:
        ReleaseError: there is nothing unreleased, or the version is in it already.
    """
    if f"## [{version}]" in changelog:
        raise ReleaseError(f"{CHANGELOG} has a section {version} already; choose another version")
    head, found, rest = changelog.partition(_UNRELEASED)
    body = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    if not found or not body.strip():
        raise ReleaseError(f'{CHANGELOG} has nothing under "{_UNRELEASED}"; a release has changes')
    return f"{head}{_UNRELEASED}\n\n## [{version}] - {date}{rest}"


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading.

    Raises:
        ReleaseError: there is none.
    """
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"{CHANGELOG} has no section {version}")
    return found[1].strip() + "\n"


def prepare(root: Path, version: str, date: str) -> list[str]:
    """Write a version into the files that name it, cut the changelog, and record what the version has.

    Args:
        root: the working tree.
        version: the version of the release.
        date: its date, as YYYY-MM-DD.

    Returns:
        The names of the changed files.

    Raises:
        ReleaseError: the changelog cannot be cut.
    """
    changelog = cut((root / CHANGELOG).read_text(), version, date)
    (root / CHANGELOG).write_text(changelog)
    for file, found in expected(version).items():
        (wanted,) = found
        text = (root / file).read_text()
        (root / file).write_text(re.sub(_PLACES[file], rf"\g<1>{wanted}\g<3>", text, flags=re.MULTILINE))
    return [CHANGELOG, *_PLACES, *_record(root, version)]


def _record(root: Path, version: str) -> list[str]:
    """Keep what a version installs and which labels it has, to which later ones are held.

    Returns:
        The names of the files, that of the page which says since when there are which labels among them.
    """
    releases = root / "tests" / "skew"
    directory = releases / version
    directory.mkdir(parents=True, exist_ok=True)
    webhooks = root / "manifests" / "overlays" / "kubernetes" / "webhooks.yaml"
    page = root / "docs" / "reference" / "labels.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    texts = {
        directory / "webhooks.yaml": webhooks.read_text(),
        directory / "settings.yaml": yaml.safe_dump(effective(), sort_keys=False),
        directory / labels.RECORD: labels.recorded(),
    }
    for file, text in texts.items():
        file.write_text(text)
    page.write_text(labels.page(releases))
    return [file.relative_to(root).as_posix() for file in (*texts, page)]
