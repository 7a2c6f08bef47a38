"""WWW-Authenticate headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.images.registry.challenges import Challenge, parse_challenges

REALM = "https://auth.example/token"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            f'Bearer realm="{REALM}",service="registry.example",scope="repository:a/b:pull"',
            [Challenge("bearer", {"realm": REALM, "service": "registry.example", "scope": "repository:a/b:pull"})],
        ),
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        ("Basic", [Challenge("basic", {})]),
        ('Negotiate, Basic realm="x y"', [Challenge("negotiate", {}), Challenge("basic", {"realm": "x y"})]),
        (
            'Basic realm="x", BEARER Realm=plain , service = "q\\"uoted, and comma"',
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"realm": "plain", "service": 'q"uoted, and comma'}),
            ],
        ),
        ('Bearer realm="a",realm="b"', [Challenge("bearer", {"realm": "a"})]),
        ("", []),
        ("=", []),
        ('Bearer realm="open', [Challenge("bearer", {})]),
    ],
)
def test_a_header_has_challenges(header: str, expected: list[Challenge]) -> None:
    found = parse_challenges([header])
    assert found[: len(expected)] == expected


def test_several_headers_add_up() -> None:
    assert [each.scheme for each in parse_challenges(["Basic", 'Bearer realm="x"'])] == ["basic", "bearer"]


@given(st.text(max_size=300) | st.text(alphabet='aB =,"\\\t', max_size=5000))
def test_whatever_the_header_is_it_ends(header: str) -> None:
    for challenge in parse_challenges([header]):
        assert challenge.scheme == challenge.scheme.lower()


TOKENS = st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True)


@given(TOKENS, st.dictionaries(TOKENS.map(str.lower), st.text(st.characters(codec="ascii"), max_size=20), max_size=4))
def test_what_is_written_is_read(scheme: str, parameters: dict[str, str]) -> None:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in parameters.items()}
    header = f"{scheme} " + ", ".join(f'{name}="{value}"' for name, value in escaped.items())
    if "\n" not in header:
        assert parse_challenges([header]) == [Challenge(scheme.lower(), parameters)]
