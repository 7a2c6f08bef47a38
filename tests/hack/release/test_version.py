from __future__ import annotations

from pathlib import Path

import pytest

from hack.release import ReleaseError
from hack.release.image import parse_image
from hack.release.version import expected, notes, prepare, versions
from webhook import __version__
from webhook.settings.file import default_settings, load

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    *("pyproject.toml", "webhook/__init__.py", "charts/kubevirt-webhook/Chart.yaml"),
    "manifests/overlays/kubernetes/webhooks.yaml",
]


def test_images_are_named_by_digest() -> None:
    digest = f"sha256:{'a' * 64}"

    assert str(parse_image(f"registry.example:5000/a/b@{digest}")) == f"registry.example:5000/a/b@{digest}"
    for wrong in ("a/b:1", f"a/b:1@{digest}", f"@{digest}", "a/b@sha256:1", f"a b@{digest}", f"a/b/@{digest}"):
        with pytest.raises(ReleaseError):
            parse_image(wrong)


def test_a_release_is_prepared_in_all_its_files(tmp_path: Path) -> None:
    assert versions(ROOT) == expected(__version__)
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [0.1.0] - 2026-01-01\n\n- Zero.\n"
    )

    changed = prepare(tmp_path, "0.2.0rc1", "2026-11-22")

    assert versions(tmp_path) == expected("0.2.0rc1")
    assert notes(changelog.read_text(), "0.2.0rc1") == "### Added\n\n- One.\n"
    assert load(tmp_path / "tests" / "skew" / "0.2.0rc1" / "settings.yaml").server == default_settings().server
    assert all((tmp_path / name).exists() for name in changed)
