from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hack.controlplane import build, bundles
from webhook.kubevirt.releases.capabilities import KNOWN, parse_version

EARLIER = "1.8.4"
NOTHING: dict[str, str] = {}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The modules that are built, to change."""
    copy = shutil.copytree(bundles.HERE, tmp_path / "modules")
    monkeypatch.setattr(bundles, "HERE", copy)
    return copy


def located(bundle: bundles.Bundle) -> Path:
    return build.location(NOTHING, Path("/cache"), bundle)


def test_the_releases_of_kubevirt_that_can_be_built() -> None:
    releases = bundles.kubevirt_releases()

    assert next(iter(releases)) == str(KNOWN[-1])
    # The behavior of each release is known; of some lines only an early patch release can be had as a module.
    assert {release.line for release in map(parse_version, releases) if release} == {known.line for known in KNOWN}
    # Each has a directory of its own in the cache.
    assert len({located(bundle) for bundle in releases.values()}) == len(releases) > 1


@pytest.mark.parametrize(
    ("release", "file"),
    [
        ("1.9.0", "kubevirt/virt-operator-objects/main.go"),
        ("1.9.0", "kubevirt/virt-template/api/core/core.go"),
        ("1.9.0", "kubevirt/go.sum"),
        (EARLIER, "kubevirt-1.8/virt-operator-objects/release.go"),
        # Its go.mod takes these in the place of a module that no proxy has.
        (EARLIER, "kubevirt/virt-template/api/core/core.go"),
    ],
)
def test_a_build_of_other_sources_is_never_taken(modules: Path, release: str, file: str) -> None:
    bundle, other = bundles.kubevirt_releases()[release], bundles.HELM
    before, kept = located(bundle), located(other)
    source = (modules / file).read_bytes()

    (modules / file).write_bytes(source + b"\n")
    assert located(bundle) != before
    assert located(other) == kept

    (modules / file).write_bytes(source)
    assert located(bundle) == before
