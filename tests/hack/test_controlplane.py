from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hack.controlplane import build, bundles
from webhook.kubevirt.releases.capabilities import KNOWN, parse_version


def located(bundle: bundles.Bundle) -> Path:
    return build.location({}, Path("/cache"), bundle)


def test_the_releases_of_kubevirt_that_can_be_built() -> None:
    releases = bundles.kubevirt_releases()

    assert next(iter(releases)) == str(KNOWN[-1])
    # The behavior of each release is known; of some lines only an early patch release can be had as a module.
    assert {release.line for release in map(parse_version, releases) if release} == {known.line for known in KNOWN}
    # Each has a directory of its own in the cache.
    assert len({located(bundle) for bundle in releases.values()}) == len(releases) > 1


def test_a_build_of_other_sources_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "HERE", modules := shutil.copytree(bundles.HERE, tmp_path / "modules"))
    template = "kubevirt/virt-template/api/core/core.go"
    own = ("kubevirt/virt-operator-objects/main.go", "kubevirt/go.sum", template)
    # The go.mod of the older release takes these in the place of a module that no proxy has.
    earlier = ("kubevirt-1.8/virt-operator-objects/release.go", template)
    for release, file in (*(("1.9.0", name) for name in own), *(("1.8.4", name) for name in earlier)):
        bundle, other = bundles.kubevirt_releases()[release], bundles.HELM
        before, kept = located(bundle), located(other)
        source = (modules / file).read_bytes()

        (modules / file).write_bytes(source + b"\n")
        assert located(bundle) != before
        assert located(other) == kept
        (modules / file).write_bytes(source)
        assert located(bundle) == before
