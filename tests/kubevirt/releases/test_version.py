from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kubevirt.releases.capabilities import KNOWN, NEWEST, Version, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        *(("1.7", (1, 7, 4)), ("v1.7", (1, 7, 4)), ("v1.6.0", (1, 6, 0)), ("1.8.99", (1, 8, 99)), ("1.10", (1, 10, 0))),
        *(("v1.9.0-rc.1", (1, 9, 0)), ("v1.8.4-12-g0123abc", (1, 8, 4)), ("v1.6.2_build.7", (1, 6, 2))),
        *(("1.5", (1, 5, 0)), ("4.20", (1, 6, 6)), ("v4.20.3", (1, 6, 6)), ("4.21.1-17", (1, 7, 4))),
        *(("4.18.2", (1, 4, 0)), ("4.2.1", (4, 2, 1))),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == Version(*version)


@pytest.mark.parametrize("text", ["", "v", "devel", "1", "1.", "1.x", "sha256:0123", "1.7.4 ", " 1.7", "1.7\n", "x1.7"])
def test_what_is_not_a_version(text: str) -> None:
    assert parse_version(text) is None


@given(st.text(alphabet="v0123456789.-+ae\n", max_size=12))
def test_whatever_is_written_is_a_version_or_none(text: str) -> None:
    version = parse_version(text)
    assert version is None or (version.line >= (0, 0) and parse_version(str(version)) is not None)


def test_known_versions_are_in_their_order() -> None:
    assert (list(KNOWN), KNOWN[-1]) == (sorted(KNOWN), NEWEST)
    assert len({version.line for version in KNOWN}) == len(KNOWN)
