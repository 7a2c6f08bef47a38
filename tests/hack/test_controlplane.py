from __future__ import annotations

from hack.controlplane import build
from webhook.releases.version import KNOWN, parse_version


def test_the_releases_of_kubevirt_that_can_be_built() -> None:
    releases = build.kubevirt_releases()

    assert next(iter(releases)) == str(KNOWN[-1])
    # The behavior of each release is known; of some lines only an early patch release can be had as a module.
    assert {release.line for release in map(parse_version, releases) if release} == {known.line for known in KNOWN}
    # Each has a directory of its own in the cache.
    assert len({bundle.version for bundle in releases.values()}) == len(releases) > 1
