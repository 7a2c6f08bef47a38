from __future__ import annotations

from pathlib import Path

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
