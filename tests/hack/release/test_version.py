from __future__ import annotations

import re
from pathlib import Path

import pytest

from hack.release.image import parse_image, read_archive
from hack.release.mistake import ReleaseError
from hack.release.version import chart_version, check_version, cut, expected, notes, prepare, versions
from webhook import __version__
from webhook.settings.file import default_settings, load

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [0.1.0] - 2026-01-01\n\n- Zero.\n"


def test_all_files_name_the_version_of_the_program() -> None:
    assert versions(ROOT) == expected(__version__)


def test_what_was_unreleased_is_the_versions() -> None:
    made = cut(CHANGELOG, "0.2.0", "2026-11-22")

    assert re.findall("^## .*$", made, re.MULTILINE) == [
        "## [Unreleased]", "## [0.2.0] - 2026-11-22", "## [0.1.0] - 2026-01-01",
    ]  # fmt: skip
    assert notes(made, "0.2.0") == "### Added\n\n- One.\n"
    assert notes(made, "0.1.0") == "- Zero.\n"


@pytest.mark.parametrize(("changelog", "version"), [
    (CHANGELOG, "0.1.0"),
    (CHANGELOG.replace("### Added\n\n- One.\n", ""), "0.2.0"),
    ("# Changelog\n", "0.2.0"),
])  # fmt: skip
def test_a_changelog_that_cannot_be_cut(changelog: str, version: str) -> None:
    with pytest.raises(ReleaseError):
        cut(changelog, version, "2026-11-22")


def test_versions_for_python_and_helm() -> None:
    assert chart_version(check_version("1.2.0rc1")) == "1.2.0-rc1"
    assert chart_version(check_version("1.2.0")) == "1.2.0"
    for wrong in ("v1.2.0", "1.2", "1.2.0-rc1", "01.2.0", ""):
        with pytest.raises(ReleaseError):
            check_version(wrong)


def test_images_are_named_by_digest() -> None:
    digest = f"sha256:{'a' * 64}"

    assert str(parse_image(f"registry.example:5000/a/b@{digest}")) == f"registry.example:5000/a/b@{digest}"
    for wrong in ("a/b:1", f"a/b:1@{digest}", f"@{digest}", "a/b@sha256:1", f"a b@{digest}", f"a/b/@{digest}"):
        with pytest.raises(ReleaseError):
            parse_image(wrong)


def test_what_is_not_an_archive_of_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no archive")
    for file in ("file", "missing"):
        with pytest.raises(ReleaseError, match="not an OCI archive"):
            read_archive(tmp_path / file)


def test_a_release_is_prepared_in_all_its_files(tmp_path: Path) -> None:
    for name in (
        "pyproject.toml",
        "webhook/__init__.py",
        "charts/kubevirt-webhook/Chart.yaml",
        "manifests/overlays/kubernetes/webhooks.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)

    changed = prepare(tmp_path, "0.2.0rc1", "2026-11-22")

    assert versions(tmp_path) == expected("0.2.0rc1")
    assert notes((tmp_path / "CHANGELOG.md").read_text(), "0.2.0rc1") == "### Added\n\n- One.\n"
    assert load(tmp_path / "tests" / "skew" / "0.2.0rc1" / "settings.yaml").server == default_settings().server
    assert all((tmp_path / name).exists() for name in changed)
