"""YAML and JSON out of texts and files: values as kubectl reads them, lines and errors."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError, InputErrors
from webhook.k8s import yaml_documents
from webhook.k8s.documents import Document, mistakes_of
from webhook.k8s.yaml_documents import MAX_DEPTH, MAX_MISTAKES, parse_documents, read_documents

Refused = Callable[..., str]


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def both_loaders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_documents, "_LOADER", getattr(yaml, request.param))


def parsed(text: str | bytes) -> list[Any]:
    return [document.value for document in parse_documents(text, "f.yaml")]


def one(text: str) -> Document:
    (document,) = parse_documents(text, "f.yaml")
    return document


def rejection(text: str | bytes) -> str:
    with pytest.raises(InputError) as refused:
        list(parse_documents(text, "f.yaml"))
    return str(refused.value)


@pytest.fixture
def refused(golden_catalogue: Callable[[str, str], None]) -> Refused:
    """The mistakes in a text, of which each has a line, held to the golden file."""

    def check(text: str | bytes, *lines: int) -> str:
        told = rejection(text)
        assert [line.partition(": ")[0] for line in told.split("\n")] == [f"f.yaml:{line}" for line in lines]
        for line in told.split("\n"):
            golden_catalogue("k8s/yaml_documents.txt", line.partition(": ")[2])
        return told

    return check


class TestScalars:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            *(("true", True), ("True", True), ("FALSE", False), ("tRUE", "tRUE"), ("null", None), ("~", None)),
            *(("", None), ("NULL", None), ("0", 0), ("-0", 0), ("12", 12), ("-12", -12), ("+5", 5), ("1_000", 1000)),
            *(("0x1F", 31), ("0o17", 15), ("0b101", 5)),
            # As go-yaml, which so reads `defaultMode: 0644`.
            *(("0644", 420), ("-017", -15), ("08", 8), ("1.5", 1.5), (".5", 0.5), ("1.", 1), ("-1e3", -1000)),
            *(("9223372036854775808", 2**63), ("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2.0**64)),
            *(("-9223372036854775809", -(2.0**63)), ("+9223372036854775808", 2.0**63)),
            *((text, text) for text in ("0x10000000000000000", "1e999", "9" * 400, "1.2.3", "0x", "-a", "+", "1:30")),
            *((text, text) for text in ("2026-01-31", "2026-01-31T12:00:00Z")),
            *(("'true'", "true"), ('"12"', "12"), ("! 12", "12"), ("!!str 12", "12"), ("!!int '12'", 12)),
            *(("!!float 3", 3), ("!!bool 'true'", True), ("!!null ''", None), ("|\n  12\n", "12\n")),
        ],
    )
    def test_are_read_as_kubectl_reads_them(self, text: str, value: object) -> None:
        (read,) = parsed(f"a: {text}")
        assert read == {"a": value}
        assert type(read["a"]) is type(value)

    @pytest.mark.parametrize(
        ("word", "value"), [("yes", True), ("on", True), ("Y", True), ("no", False), ("OFF", False), ("n", False)]
    )
    def test_words_for_booleans_are_text_in_quotes_and_where_a_caller_says_so(
        self, word: str, value: bool, refused: Refused
    ) -> None:
        text = f"labels: {{a: {word}, b: [{word}, '{word}']}}"
        assert parsed(text) == [{"labels": {"a": value, "b": [value, word]}}]
        (document,) = parse_documents(text, "f.yaml", switches=False)
        assert document.value == {"labels": {"a": word, "b": [word, word]}}

    @pytest.mark.parametrize("word", ["on", "Off", "y"])
    def test_words_for_booleans_are_no_keys_but_at_the_top_where_workflows_of_github_have_one(
        self, word: str, refused: Refused
    ) -> None:
        assert f'"{word}"' in refused(f"labels:\n  {word}: x", 2)
        assert parsed(f"{word}: x") == [{word: "x"}]

    @pytest.mark.parametrize("number", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "!!float .inf"])
    def test_numbers_beyond_json_are_refused(self, number: str, refused: Refused) -> None:
        plain = number.removeprefix("!!float ")
        assert plain in refused(f"a:\n  b: {number}", 2)
        assert parsed(f"'{plain}'") == [plain]

    @pytest.mark.parametrize(
        ("text", "quoted"),
        [
            *(("!!binary aGk=", "!!binary"), ("!mine x", "!mine"), ("!!timestamp 2026-01-31", "!!timestamp")),
            *(("!!set {a}", "!!set"), ("!!omap []", "!!omap"), ("!!int x", "x"), ("!!bool 1", "1")),
            *(("!!int true", "true"), ("!!float x", "x")),
        ],
    )
    def test_other_tags_and_those_that_lie_are_refused(self, text: str, quoted: str, refused: Refused) -> None:
        assert f'"{quoted}"' in refused(text, 1)
        assert parsed("!!map {a: !!seq [1]}") == [{"a": [1]}]


class TestMappings:
    def test_keys_that_stand_twice_are_all_told(self, refused: Refused) -> None:
        refused("a: 1\nb: 2\na: 3\nc: {d: 1,\n d: 2}\n", 3, 5)

    @pytest.mark.parametrize("key", ["8080", "true", "null", "1.5"])
    def test_keys_are_strings(self, key: str, refused: Refused) -> None:
        assert f'"{key}"' in refused(f"a:\n  {key}: x", 2)
        assert parsed(f"'{key}': x") == [{key: "x"}]

    @pytest.mark.parametrize("key", ["[a]", "{a: 1}"])
    def test_keys_are_no_collections(self, key: str, refused: Refused) -> None:
        refused(f"? {key}\n: x", 1)


class TestAliases:
    def test_stand_for_a_copy_within_anchors_and_as_keys_and_mean_the_last_anchor_of_a_name(self) -> None:
        (value,) = parsed("a: &x {b: [1]}\nc: *x\nd: &y 1\ne: *y\n")
        assert value == {"a": {"b": [1]}, "c": {"b": [1]}, "d": 1, "e": 1}
        assert value["a"] is not value["c"]
        assert value["a"]["b"] is not value["c"]["b"]
        inner = [{"x": "w"}, {"x": "w"}, "w"]
        assert parsed("- &a [&b {x: &c w}, *b, *c]\n- *a\n- *b\n- {*c : z}\n") == [[inner, inner, inner[0], {"w": "z"}]]
        assert parsed("- &x [&a 1]\n- &a 2\n- *x\n- *a\n") == [[[1], 2, [1], 2]]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            *(("&a 1\n---\n*a\n", 3), ("&a [*a]", 1), ("&a {b: {c: *a}}", 1), ("x: 1\ny: &a [&a [*a]]", 2)),
            # A mistake below an anchor is reported once.
            ("a: &x {b: 1, b: 2}\nc: *x\n", 1),
        ],
    )
    def test_reach_into_no_other_document_and_not_to_themselves(self, text: str, line: int, refused: Refused) -> None:
        refused(text, line)

    def test_that_unfold_without_end_are_refused(self, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
        assert yaml_documents.MAX_ALIASED == 1_000_000
        monkeypatch.setattr(yaml_documents, "MAX_ALIASED", 10_000)
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
        refused("\n".join(lines), 4)
        # They are counted over all documents of a file.
        monkeypatch.setattr(yaml_documents, "MAX_ALIASED", 5)
        assert parsed("- &a [1]\n- *a\n") == [[[1], [1]]]
        refused("- &a [1]\n- *a\n---\n- &a [1]\n- *a\n", 5)

    def test_deepen_no_further_than_anything_else(self, refused: Refused) -> None:
        refused("\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, MAX_DEPTH + 2))]), 1)


class TestMergeKeys:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            *(("{<<: *x}", {"b": 1, "c": 2}), ("{<<: *x, b: 5, d: 6}", {"b": 5, "c": 2, "d": 6})),
            *(("{d: 6, <<: *x}", {"d": 6, "b": 1, "c": 2}), ("{<<: [*x, *y]}", {"b": 1, "c": 2, "e": 3})),
            *(("{<<: [*y, *x]}", {"b": 9, "c": 2, "e": 3}), ("{<<: {f: [1]}}", {"f": [1]}), ("{<<: []}", {})),
            *(("{b: 1, <<: *x}", {"b": 1, "c": 2}), ("{'<<': 1}", {"<<": 1})),
        ],
    )
    def test_merge_as_in_go_yaml(self, text: str, value: object) -> None:
        (read,) = parsed(f"x: &x {{b: 1, c: 2}}\ny: &y {{b: 9, e: 3}}\nz: {text}\n")
        assert read["z"] == value

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            # Programs disagree on it: kubectl would let the merged value win, YAML's own rule the mapping's.
            ("x: &x {b: 1}\ny:\n  b: 2\n  <<: *x\n", 3),
            ("x: &x {b: 1}\ny: {<<: *x, b: 2, b: 3}\n", 2),
            ("<<: {a: 1}\n<<: {b: 1}\n", 2),
            *((f"a: 1\n<<: {value}\n", 2) for value in ("1", "[1]", "text", "", "[[a]]")),
        ],
    )
    def test_that_are_ambiguous_or_merge_no_mapping_are_refused(self, text: str, line: int, refused: Refused) -> None:
        refused(text, line)


class TestSyntax:
    def test_a_tab_is_called_a_tab_and_what_was_begun_on_another_line_or_found_before_is_told_too(
        self, refused: Refused
    ) -> None:
        refused("a:\n\t- b\n", 2)
        assert "(while parsing a flow sequence that starts in line 2)" in rejection("# c\na: [1,\n2\nb: 3")
        told = rejection("a: {b: 1, b: 2}\nc: [")
        assert told.startswith("f.yaml:1: ") and "\nf.yaml:2: is not valid YAML" in told

    @pytest.mark.parametrize(
        ("text", "start"),
        [
            ("a: b: c", "f.yaml:1: is not valid YAML: mapping values are not allowed"),
            *(("a: [1,\n2\nb: 3", "f.yaml:3: is not valid YAML: "), ("{", "f.yaml:1: is not valid YAML: ")),
            ("\n'abc", "f.yaml:2: is not valid YAML: found unexpected end of stream"),
            ("!e!x a", "f.yaml:1: is not valid YAML: found undefined tag handle"),
            ("%YAML 3.0\n---\na", "f.yaml:1: is not valid YAML: found incompatible YAML document"),
            *(("a: @x", "f.yaml:1: is not valid YAML: found character"), ('a: "\\ud83d"', "f.yaml:1: ")),
            *(('"\\UFFFFFFFF"', "f.yaml:1: is not valid YAML"), (f"%YAML {'1' * 5000}.1\n---\na", "f.yaml:1: is not")),
        ],
    )
    def test_mistakes_have_a_line(self, text: str, start: str) -> None:
        assert rejection(text).startswith(start)

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            *((b"a: 1\nb: \xff", 2), ("a: 1".encode("utf-16"), 1), (b"a: 1\n\nb: \x00", 3)),
            *(("a: \ud800", 1), ("a: \x1b[0m", 1)),
        ],
        ids=["utf-8", "utf-16", "zero", "surrogate", "escape"],
    )
    def test_bytes_that_are_no_text_are_refused(self, data: bytes | str, line: int, refused: Refused) -> None:
        refused(data, line)
        assert parsed(b"\xef\xbb\xbfa: 1") == [{"a": 1}], "a byte order mark is nothing"

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
    def test_depth_has_a_limit(self, opening: str, refused: Refused) -> None:
        refused(opening * 1500, 1)
        refused("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1)
        (value,) = parsed("[" * MAX_DEPTH + "]" * MAX_DEPTH)
        for _ in range(MAX_DEPTH - 1):
            (value,) = value
        assert value == []

    def test_endless_mistakes_come_to_an_end(self, golden_catalogue: Callable[[str, str], None]) -> None:
        with pytest.raises(InputErrors) as refused:
            parsed("\n".join(f"{number}: x" for number in range(10 * MAX_MISTAKES)))
        assert len(refused.value.mistakes) == MAX_MISTAKES + 1
        golden_catalogue("k8s/yaml_documents.txt", refused.value.mistakes[-1].what)


class TestSeveralDocuments:
    def test_empty_ones_are_skipped(self) -> None:
        found = list(parse_documents("# nothing\n---\na: 1\n---\n---\n~\n--- # c\n\nb: 2\n...\n", "f"))
        assert [(document.value, document.line) for document in found] == [({"a": 1}, 3), ({"b": 2}, 9)]
        assert [parsed(text) for text in ("", "\n", "# c", "---", "null")] == [[]] * 5

    def test_the_good_ones_come_before_the_mistakes_are_raised(self) -> None:
        found = parse_documents("a: 1\n---\nb: {c: 1, c: 2}\n---\nd: 1\n---\ne: .inf\n", "f")
        good: list[Any] = []
        with pytest.raises(InputErrors) as refused:
            good.extend(document.value for document in found)
        assert good == [{"a": 1}, {"d": 1}]
        assert [mistake.where for mistake in mistakes_of(refused.value)] == ["f:3", "f:7"]
        assert next(parse_documents("a: 1\n---\nb: [", "f")).value == {"a": 1}, "reading can be stopped"


class TestLines:
    TEXT = "# c\nserver:\n  listen: x\n  items:\n  - a: 1\n    b: 2\n  -  c: 3\nlast: &z\n  k: v\nalso: *z\n"

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            *(([], 2), (["server"], 2), (["server", "listen"], 3), (["server", "items"], 4)),
            *((["server", "items", 0], 5), (["server", "items", 0, "b"], 6), (["server", "items", 1], 7)),
            *((["server", "items", 1, "c"], 7), (["last", "k"], 9), (["also"], 10), (["also", "k"], 9)),
            *((["nowhere"], 2), (["server", "nowhere", "at", "all"], 2), (["server", "items", 2], 4)),
            *((["server", "items", -1], 4), (["server", "items", "a"], 4), (["server", "listen", "x"], 3)),
        ],
    )
    def test_of_any_path(self, path: list[str | int], line: int) -> None:
        assert (one(self.TEXT).line_of(path), one(self.TEXT).where(path)) == (line, f"f.yaml:{line}")

    def test_of_merged_keys_are_where_they_were_written(self) -> None:
        document = one("x: &x\n  b: 1\n  c: 2\ny:\n  <<: *x\n  c: 3\n  d: 4\n")
        assert [document.line_of(["y", key]) for key in "bcd"] == [2, 6, 7]


class TestFiles:
    @pytest.fixture
    def told(self, golden_catalogue: Callable[[str, str], None]) -> Callable[[Path], InputError]:
        """The error in a file, held to the golden file, whatever reads the file."""

        def check(path: Path) -> InputError:
            with pytest.raises(InputError) as refused:
                list(read_documents(path))
            golden_catalogue("k8s/yaml_files.txt", refused.value.what)
            return refused.value

        return check

    @pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "a.yaml.gz", "a.json.gz", "a"])
    def test_are_read_by_their_names(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        data = b'{"a": [1, "x"]}'
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        (document,) = read_documents(path)
        assert (document.value, document.file, document.line) == ({"a": [1, "x"]}, str(path), 1)
        assert document.line_of(["a", 1]) == 1

    @pytest.mark.parametrize(("data", "count"), [(b"null", 0), (b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, 1)])
    def test_json_null_is_nothing_and_json_may_be_deep(self, tmp_path: Path, data: bytes, count: int) -> None:
        (tmp_path / "a.json").write_bytes(data)
        assert len(list(read_documents(tmp_path / "a.json"))) == count

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            *((b'{"a": 1,\n"b":}', 2), (b'{"a": 1,\n', 2), (b"1 2", 1), (b"NaN", 1), (b'"\xff"', 1)),
            *((b"[" * 300 + b"]" * 300, 0), (b'{"a":' * 201 + b"1" + b"}" * 201, 0), (b"[" * 100_000, 0)),
        ],
        ids=["no value", "truncated", "two values", "NaN", "not UTF-8", "arrays", "objects", "endless"],
    )
    def test_bad_json_is_refused(self, tmp_path: Path, data: bytes, line: int, told: Callable[..., Any]) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(data)
        assert told(path).where == (f"{path}:{line}" if line else str(path))

    @pytest.mark.parametrize("second", [b'{"b": NaN}', b'{"b": "\\ud800"}', b'{"b": 1e999}', b'{"b": }', b"[1]"])
    def test_a_stream_of_json_objects_is_decoded_like_other_json(self, tmp_path: Path, second: bytes) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(b'{"a": 1}\n\n {"b":\n 2}{"c": 3}')
        assert [(each.value, each.line) for each in read_documents(path)] == [
            ({"a": 1}, 1),
            ({"b": 2}, 3),
            ({"c": 3}, 4),
        ]
        path.write_bytes(b'{"a": 1}\n' + second)
        with pytest.raises(InputError):
            list(read_documents(path))

    @pytest.mark.parametrize(
        "data", [b"a: 1", gzip.compress(b"a: 1", mtime=0)[:-9], gzip.compress(b"a: 1" * 99, mtime=0)[:20]]
    )
    def test_a_broken_gzip_file_is_told(self, tmp_path: Path, data: bytes, told: Callable[..., Any]) -> None:
        (tmp_path / "a.yaml.gz").write_bytes(data)
        told(tmp_path / "a.yaml.gz")

    @pytest.mark.parametrize("name", ["a.yaml", "a.yaml.gz"])
    def test_a_large_one_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: Callable[..., Any]
    ) -> None:
        monkeypatch.setattr(yaml_documents, "MAX_BYTES", 1 << 20)
        data = b"#" * ((1 << 20) + 1)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        told(tmp_path / name)


# Written by hack/kubectl_yaml/main.go, with what kubectl reads YAML by.
READINGS = Path(__file__).parents[1] / "data" / "kubectl-yaml.jsonl.gz"
# What nobody who writes for kubectl means; it is refused, with a line. PyYAML without libyaml refuses some tabs, too.
STRICTER = re.compile(
    r"the key \S+ is (?:a duplicate|not a string|overridden)|the tag \S+ is not valid|\.inf is not a valid JSON number"
    r"|a tab is used"
)
# What kubectl cannot read, and nobody writes.
LAXER = ("a: !!float 9223372036854775808", "%YAML 1.2\n---\na: off")
# At the top kubectl makes the key "true" of it, which no object has either.
SWITCH_AT_THE_TOP = re.compile(r"(?:\? |\{)?(?:on|off|yes|No|y|n)(?:\n)?: 1.*")


def _is_same(ours: Any, other: Any) -> bool:
    """Whether two values are one to the API server, which has int64 and floats."""
    if isinstance(ours, dict) and isinstance(other, dict):
        return ours.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in ours.items())
    if isinstance(ours, list) and isinstance(other, list):
        return len(ours) == len(other) and all(map(_is_same, ours, other))
    if type(ours) in (int, float) and type(other) in (int, float):
        return ours == other if abs(ours) <= 2**53 else float(ours) == float(other)
    return type(ours) is type(other) and bool(ours == other)


def test_everything_is_read_as_kubectl_reads_it() -> None:
    different, refusals = [], []
    for line in gzip.decompress(READINGS.read_bytes()).splitlines():
        reading = json.loads(line)
        text = reading["yaml"]
        try:
            ours: Any = next(iter(parsed(text)), None)
        except InputError as refused:
            if "error" not in reading:
                refusals.append((text, str(refused)))
            continue
        if ("error" in reading and text not in LAXER) or (
            "value" in reading and not _is_same(ours, reading["value"]) and not SWITCH_AT_THE_TOP.fullmatch(text)
        ):
            different.append((reading, ours))
    assert different == []
    assert [each for each in refusals if not STRICTER.search(each[1])] == []
    assert len(refusals) < 40


# Without what only surrogate pairs could escape: YAML has none.
TEXTS = st.text(st.characters(max_codepoint=0xFFFD, exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=20,
).filter(lambda value: value is not None)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(below, (*path, key))


@given(VALUES, st.integers(0, 2).map(lambda indent: indent or None))
def test_json_is_yaml(value: Any, indent: int | None) -> None:
    document = one(json.dumps(value, indent=indent))
    assert _is_same(document.value, value)


@given(VALUES)
def test_every_path_has_its_line(value: Any) -> None:
    document = one(json.dumps(value, indent=1))
    lines = [document.line_of(path) for path in _paths(value)]
    # In indented JSON every key and item starts a line.
    assert lines == sorted(set(lines))


@given(st.text(st.sampled_from("ab&*!<:,-?|>%@`'\"[]{}# \t\n\\0.1~xe"), max_size=60) | st.text() | st.binary())
def test_anything_else_is_a_clear_refusal(source: str | bytes) -> None:
    try:
        values = parsed(source)
    except InputError as refused:
        assert all(str(mistake).startswith("f.yaml:") and "\n" not in str(mistake) for mistake in mistakes_of(refused))
    else:
        assert None not in values
        assert msgspec.json.decode(msgspec.json.encode(values)) == values
