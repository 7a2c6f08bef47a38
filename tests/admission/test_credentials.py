from __future__ import annotations

import gzip
import re
import sys
from base64 import b64encode
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.attacks.counting import no_collection
from tests.looks import CANARY, LOOKS
from webhook import text as texts
from webhook.admission import credentials, redaction
from webhook.admission.credentials import HIDDEN, MAX_TEXT, is_secret_flag, sanitize, scrub, scrub_prose

READABLE = [
    *("web01", "u1.small", "9f8b2c3d-1111-2222-3333-444455556666", "registry.example.com:5000/ssh/server:13"),
    "quay.io/org/token-service@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    *("docker://quay.io:5000/a@sha256:0123456789abcdef", "https://images.example.com/fedora-40.qcow2"),
    *("https://[2001:db8::1]:8443/x", "kubernetes.io/hostname=node1", "node-role.kubernetes.io/worker"),
    "--kubeconfig=/etc/token-less/config",
    "spec.template.spec.accessCredentials[0].userPassword.source.secret.secretName",
    *("kubevirtvirtualmachineinstancetypes", "the bearer of this may get virtualmachineinstances", HIDDEN, ""),
]


@pytest.mark.parametrize("text", LOOKS.values(), ids=LOOKS.keys())
def test_what_looks_like_a_credential_is_hidden(text: str) -> None:
    for scrubber in (scrub, scrub_prose, sanitize):
        for around in ("{}", "see {}", "x: [{}]"):
            told = scrubber(around.format(text))
            assert (CANARY in told, HIDDEN in told) == (False, True), (scrubber, around)


@pytest.mark.parametrize("text", READABLE)
def test_the_rest_is_readable(text: str) -> None:
    assert (scrub(text), scrub_prose(text)) == (text, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://me:pw@e.com:443/x?sig=1&y=2 and on", f"https://{HIDDEN}@e.com:443/x?{HIDDEN} and on"),
        ("https://me:p/w@e.com/x and on", f"https://{HIDDEN} and on"),
        ("https://e.com/#access=1", f"https://e.com/#{HIDDEN}"),
        ("https://e.com/x?", "https://e.com/x?"),
        ("bucket.example.com/x?sig=1", f"bucket.example.com/x?{HIDDEN}"),
        ("user --password hunter2 rest", f"user --password {HIDDEN}"),
        ('{"note": 1, "password": "a b"}', f'{{"note": 1, "password": "{HIDDEN}'),
        ("a ghp_0123456789abcdefghij b", f"a {HIDDEN} b"),
        ("bearer of it", "bearer of it"),
        # A path that ends in a telling word is what a denial begins with.
        (
            "spec.accessCredentials[0].userPassword: is not valid",
            "spec.accessCredentials[0].userPassword: is not valid",
        ),
    ],
)
def test_only_what_is_secret_is_hidden(text: str, told: str) -> None:
    assert scrub_prose(text) == told


def test_a_file_is_hidden_whole_in_a_value_and_from_its_start_in_a_sentence() -> None:
    file = "#cloud-config\nusers: []"
    assert (scrub(f"a {file}"), scrub_prose(f"a {file}")) == (HIDDEN, f"a {HIDDEN}")


@pytest.mark.parametrize(
    ("flag", "secret"), [("--password", True), ("-token", True), ("--name", False), ("password", False)]
)
def test_flags(flag: str, secret: bool) -> None:
    assert is_secret_flag(flag) is secret


def test_a_text_that_is_too_long_to_be_read_is_hidden_if_anything_is_suspicious() -> None:
    for scrubber in (scrub, scrub_prose):
        assert (scrubber("token " * MAX_TEXT), scrubber("x " * MAX_TEXT)) == (HIDDEN, "x " * MAX_TEXT)


def test_compressed_texts_are_hidden_without_being_decompressed() -> None:
    bomb = b64encode(gzip.compress(b"\0" * 10_000_000)).decode()
    assert (scrub(bomb), scrub("\n".join(re.findall(".{1,76}", bomb)))) == (HIDDEN, HIDDEN)


def test_base64_that_is_not_a_text_stays() -> None:
    assert scrub(b64encode(bytes(range(128, 256))).decode()) != HIDDEN


@given(st.lists(st.sampled_from([*'abAB09 =:/?&@"\n.-_$#+{}', "://", "token", "eyJ", "Bearer ", "$6$", "password"])))
def test_what_is_hidden_stays_hidden_at_every_further_edge(pieces: list[str]) -> None:
    text = "".join(pieces)
    for scrubber in (scrub, scrub_prose):
        once = scrubber(text)
        assert scrubber(once).count("<redacted>") >= once.count("<redacted>")


# Of what credentials are made of, and of words of sentences, some long enough to be one.
_SLACK = "xoxb-" + "d" * 16
_FRAGMENTS = st.sampled_from(
    [
        *("ghp_" + "a1" * 9, "hf_" + "b" * 16, "SG." + "c" * 16, _SLACK, "npm_", "glpat-", "ya29.", "sha256~"),
        *("VirtualMachineInstance", "demo/web-1", "virt-launcher-" + "x" * 20, "é", "A" * 19, "A" * 20, "A" * 70, "="),
        *(b64encode(text).decode() for text in (b"password: hunter2", b"x" * 30, b"token=abc" * 9)),
        *("~", " ", " ", '"', "-", "_", ".", "/", ": ", "\n", "signature: x", "is set", "\\"),
    ]
)


@given(st.lists(_FRAGMENTS, max_size=6))
@example(["ya29.", _SLACK])
@example(["web.", _SLACK])
@example(["sk-live-" + "d" * 16])
@example(["npm_", "é", b64encode(b"x" * 30).decode()])
def test_a_sentence_is_passed_over_only_where_nothing_in_it_would_be_hidden(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert scrub_prose(text) == credentials._Scrubber(text, prose=True).scrub()


HOSTILE = [
    *("token ", "a=b ", "eyJ", "eyJaaaaaaaa.", "?=", "://", "x://a:b ", "x://a:b@", "A", "A=", "-----BEGIN ", "$6$"),
    *("$6$x", "a.", "password", "password=", '"password"', " : ", "Bearer ", "ghp_", "AKIA", "sk-live", "<a:", "<aaaa"),
    *('"ignition"', '"ignition" ', "ssh-a", "sk-", "--token", "aB+/"),
    *("[", "\\", '"', "=", ":", "a", "\n", " ", "@", "#"),
]


def steps(text: str, *, prose: bool) -> int:
    """Calls of Python and C functions."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with no_collection():
        sys.setprofile(seen)
        try:
            credentials._Scrubber(text, prose=prose).scrub()
        finally:
            sys.setprofile(None)
    return count


@pytest.mark.control("slow-redaction")
@pytest.mark.parametrize("piece", HOSTILE)
def test_reading_takes_steps_in_proportion_to_the_text(piece: str) -> None:
    for prose in (False, True):
        small, large = (steps(piece * (size // len(piece)), prose=prose) for size in (4000, 16_000))
        assert large <= 4.2 * small + 50, prose


PATTERNS = {
    f"{module.__name__}.{name}": value
    for module in (credentials, redaction, texts)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}


@pytest.mark.control("slow-redaction")
@pytest.mark.parametrize("name", PATTERNS)
def test_no_expression_can_be_made_to_backtrack_without_an_end(name: str) -> None:
    """A repetition without a bound is possessive, or of one class at the end of its branch, and none holds another."""

    def check(items: Any, inside: bool) -> None:
        for at, (kind, argument) in enumerate(items):
            if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
                _, most, body = argument
                endless = most is kinds.MAXREPEAT or most > 253
                assert not (endless and inside), f"{name}: a repetition in a repetition"
                simple = len(body) == 1 and body[0][0] in (kinds.IN, kinds.LITERAL, kinds.NOT_LITERAL, kinds.ANY)
                last = at == len(items) - 1 or items[at + 1][0] == kinds.AT
                assert not endless or (simple and (kind == kinds.POSSESSIVE_REPEAT or last)), name
                check(body, inside or most > 1)
            elif kind == kinds.SUBPATTERN:
                check(argument[-1], inside)
            elif kind == kinds.BRANCH:
                for branch in argument[1]:
                    check(branch, inside)

    check(parser.parse(PATTERNS[name].pattern, PATTERNS[name].flags), inside=False)
