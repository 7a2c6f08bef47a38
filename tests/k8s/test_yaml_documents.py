from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.k8s.yaml_case import Refused, one, parsed, rejection
from webhook.errors import InputErrors
from webhook.k8s import yaml_documents
from webhook.k8s.yaml_documents import MAX_DEPTH, MAX_MISTAKES, format_path, mistakes_of, parse_documents

pytestmark = pytest.mark.usefixtures("both_loaders")


class TestScalars:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("true", True),
            ("True", True),
            ("FALSE", False),
            ("tRUE", "tRUE"),
            ("null", None),
            ("~", None),
            ("", None),
            ("NULL", None),
            ("0", 0),
            ("-0", 0),
            ("12", 12),
            ("-12", -12),
            ("+5", 5),
            ("1_000", 1000),
            ("0x1F", 31),
            ("0o17", 15),
            ("0b101", 5),
            # As go-yaml, which so reads `defaultMode: 0644`.
            ("0644", 420),
            ("-017", -15),
            ("08", 8.0),
            ("1.5", 1.5),
            (".5", 0.5),
            ("1.", 1.0),
            ("-1e3", -1000.0),
            ("9223372036854775808", 2**63),
            ("18446744073709551615", 2**64 - 1),
            ("18446744073709551616", 2.0**64),
            ("-9223372036854775809", -(2.0**63)),
            ("+9223372036854775808", 2.0**63),
            ("0x10000000000000000", "0x10000000000000000"),
            ("1e999", "1e999"),
            ("9" * 400, "9" * 400),
            ("1.2.3", "1.2.3"),
            ("0x", "0x"),
            ("-a", "-a"),
            ("+", "+"),
            ("1:30", "1:30"),
            ("2026-01-31", "2026-01-31"),
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
            ("'true'", "true"),
            ('"12"', "12"),
            ("! 12", "12"),
            ("!!str 12", "12"),
            ("!!int '12'", 12),
            ("!!float 3", 3),
            ("!!bool 'true'", True),
            ("!!null ''", None),
            ("|\n  12\n", "12\n"),
        ],
    )
    def test_are_read_as_kubectl_reads_them(self, text: str, value: object) -> None:
        (read,) = parsed(f"a: {text}")

        assert read == {"a": value}
        assert type(read["a"]) is type(value)

    @pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "n", "On", "OFF"])
    def test_words_that_yaml_1_1_took_for_booleans_are_labels_values(self, word: str) -> None:
        assert parsed(f"{word}: {word}") == [{word: word}]

    @pytest.mark.parametrize("number", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "!!float .inf"])
    def test_numbers_beyond_json_are_refused(self, number: str, refused: Refused) -> None:
        plain = number.removeprefix("!!float ")

        assert plain in refused(f"a:\n  b: {number}", 2)
        assert parsed(f"'{plain}'") == [plain]

    @pytest.mark.parametrize("text", ["!!binary aGk=", "!mine x", "!!timestamp 2026-01-31", "!!set {a}", "!!omap []"])
    def test_other_tags_are_refused(self, text: str, refused: Refused) -> None:
        assert f'"{text.split(maxsplit=1)[0]}"' in refused(text, 1)

    @pytest.mark.parametrize(("tag", "text"), [("!!int", "x"), ("!!bool", "1"), ("!!int", "true"), ("!!float", "x")])
    def test_a_tag_that_lies_is_refused(self, tag: str, text: str, refused: Refused) -> None:
        assert f'"{text}"' in refused(f"{tag} {text}", 1)

    def test_tags_of_collections_may_be_written(self) -> None:
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
    def test_stand_for_a_copy(self) -> None:
        (value,) = parsed("a: &x {b: [1]}\nc: *x\nd: &y 1\ne: *y\n")

        assert value == {"a": {"b": [1]}, "c": {"b": [1]}, "d": 1, "e": 1}
        assert value["a"] is not value["c"]
        assert value["a"]["b"] is not value["c"]["b"]

    def test_work_within_anchors_and_as_keys(self) -> None:
        assert parsed("- &a [&b {x: &c y}, *b, *c]\n- *a\n- *b\n- {*c : z}\n") == [
            [[{"x": "y"}, {"x": "y"}, "y"], [{"x": "y"}, {"x": "y"}, "y"], {"x": "y"}, {"y": "z"}]
        ]

    def test_mean_the_last_anchor_of_a_name(self) -> None:
        assert parsed("- &x [&a 1]\n- &a 2\n- *x\n- *a\n") == [[[1], 2, [1], 2]]

    def test_do_not_reach_into_the_next_document(self, refused: Refused) -> None:
        refused("&a 1\n---\n*a\n", 3)

    @pytest.mark.parametrize(("text", "line"), [("&a [*a]", 1), ("&a {b: {c: *a}}", 1), ("x: 1\ny: &a [&a [*a]]", 2)])
    def test_of_themselves_are_refused(self, text: str, line: int, refused: Refused) -> None:
        refused(text, line)

    def test_that_unfold_without_end_are_refused(self, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
        assert yaml_documents.MAX_ALIASED == 1_000_000
        monkeypatch.setattr(yaml_documents, "MAX_ALIASED", 10_000)
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]

        refused("\n".join(lines), 4)

    def test_are_counted_over_all_documents_of_a_file(self, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
        monkeypatch.setattr(yaml_documents, "MAX_ALIASED", 5)

        assert parsed("- &a [1]\n- *a\n") == [[[1], [1]]]
        refused("- &a [1]\n- *a\n---\n- &a [1]\n- *a\n", 5)

    def test_deepen_no_further_than_anything_else(self, refused: Refused) -> None:
        lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, MAX_DEPTH + 2))]

        refused("\n".join(lines), 1)

    def test_a_mistake_below_an_anchor_is_told_once(self, refused: Refused) -> None:
        refused("a: &x {b: 1, b: 2}\nc: *x\n", 1)


class TestMergeKeys:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("{<<: *x}", {"b": 1, "c": 2}),
            ("{<<: *x, b: 5, d: 6}", {"b": 5, "c": 2, "d": 6}),
            ("{d: 6, <<: *x}", {"d": 6, "b": 1, "c": 2}),
            ("{<<: [*x, *y]}", {"b": 1, "c": 2, "e": 3}),
            ("{<<: [*y, *x]}", {"b": 9, "c": 2, "e": 3}),
            ("{<<: {f: [1]}}", {"f": [1]}),
            ("{<<: []}", {}),
            ("{b: 1, <<: *x}", {"b": 1, "c": 2}),
            ("{'<<': 1}", {"<<": 1}),
        ],
    )
    def test_merge_as_in_go_yaml(self, text: str, value: object) -> None:
        (read,) = parsed(f"x: &x {{b: 1, c: 2}}\ny: &y {{b: 9, e: 3}}\nz: {text}\n")

        assert read["z"] == value

    def test_an_own_key_before_that_says_otherwise_is_refused(self, refused: Refused) -> None:
        # Programs disagree on it: kubectl would let the merged value win, YAML's own rule the mapping's.
        refused("x: &x {b: 1}\ny:\n  b: 2\n  <<: *x\n", 3)

    def test_an_own_key_twice_is_refused_beside_a_merged_one(self, refused: Refused) -> None:
        refused("x: &x {b: 1}\ny: {<<: *x, b: 2, b: 3}\n", 2)

    @pytest.mark.parametrize("value", ["1", "[1]", "text", "", "[[a]]"])
    def test_merge_nothing_but_mappings(self, value: str, refused: Refused) -> None:
        refused(f"a: 1\n<<: {value}\n", 2)

    def test_stand_once(self, refused: Refused) -> None:
        refused("<<: {a: 1}\n<<: {b: 1}\n", 2)


class TestSyntax:
    def test_a_tab_is_called_a_tab(self, refused: Refused) -> None:
        refused("a:\n\t- b\n", 2)

    @pytest.mark.parametrize(
        ("text", "start"),
        [
            ("a: b: c", "f.yaml:1: is not valid YAML: mapping values are not allowed"),
            ("a: [1,\n2\nb: 3", "f.yaml:3: is not valid YAML: "),
            ("{", "f.yaml:1: is not valid YAML: "),
            ("\n'abc", "f.yaml:2: is not valid YAML: found unexpected end of stream"),
            ("!e!x a", "f.yaml:1: is not valid YAML: found undefined tag handle"),
            ("%YAML 3.0\n---\na", "f.yaml:1: is not valid YAML: found incompatible YAML document"),
            ("a: @x", "f.yaml:1: is not valid YAML: found character"),
        ],
    )
    def test_mistakes_have_a_line(self, text: str, start: str) -> None:
        assert rejection(text).startswith(start)

    def test_what_was_begun_on_another_line_is_told(self) -> None:
        assert "(while parsing a flow sequence that starts in line 2)" in rejection("# c\na: [1,\n2\nb: 3")

    @pytest.mark.parametrize("text", ['"\\UFFFFFFFF"', f"%YAML {'1' * 5000}.1\n---\na"])
    def test_absurdities_are_syntax_too(self, text: str) -> None:
        assert "is not valid YAML" in rejection(text)

    def test_half_a_surrogate_pair_is_no_character(self) -> None:
        assert rejection('a: "\\ud83d"').startswith("f.yaml:1: ")

    def test_mistakes_found_before_are_told_too(self) -> None:
        assert rejection("a: {b: 1, b: 2}\nc: [").startswith("f.yaml:1: ")
        assert "\nf.yaml:2: is not valid YAML" in rejection("a: {b: 1, b: 2}\nc: [")

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (b"a: 1\nb: \xff", 2),
            ("a: 1".encode("utf-16"), 1),
            (b"a: 1\n\nb: \x00", 3),
            ("a: \ud800", 1),
            ("a: \x1b[0m", 1),
        ],
        ids=["utf-8", "utf-16", "zero", "surrogate", "escape"],
    )
    def test_bytes_that_are_no_text_are_refused(self, data: bytes | str, line: int, refused: Refused) -> None:
        refused(data, line)

    def test_a_byte_order_mark_is_nothing(self) -> None:
        assert parsed(b"\xef\xbb\xbfa: 1") == [{"a": 1}]

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
    def test_depth_has_a_limit(self, opening: str, refused: Refused) -> None:
        refused(opening * 5000, 1)

    def test_the_deepest_that_is_allowed_is_read(self) -> None:
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

    @pytest.mark.parametrize("text", ["", "\n", "# c", "---", "null"])
    def test_nothing_is_no_document(self, text: str) -> None:
        assert parsed(text) == []

    def test_the_good_ones_come_before_the_mistakes_are_raised(self) -> None:
        found = parse_documents("a: 1\n---\nb: {c: 1, c: 2}\n---\nd: 1\n---\ne: .inf\n", "f")
        good: list[Any] = []
        with pytest.raises(InputErrors) as refused:
            good.extend(document.value for document in found)

        assert good == [{"a": 1}, {"d": 1}]
        assert [mistake.where for mistake in mistakes_of(refused.value)] == ["f:3", "f:7"]

    def test_reading_can_be_stopped(self) -> None:
        found = parse_documents("a: 1\n---\nb: [", "f")

        assert next(found).value == {"a": 1}


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
        assert one(self.TEXT).line_of(path) == line
        assert one(self.TEXT).where(path) == f"f.yaml:{line}"

    def test_of_merged_keys_are_where_they_were_written(self) -> None:
        document = one("x: &x\n  b: 1\n  c: 2\ny:\n  <<: *x\n  c: 3\n  d: 4\n")

        assert [document.line_of(["y", key]) for key in "bcd"] == [2, 6, 7]


class TestWords:
    def test_paths(self) -> None:
        path: list[str | int] = ["spec", "volumes", 0, "name"]

        assert format_path(path) == "spec.volumes[0].name"
        assert format_path(["metadata", "labels", "kubernetes.io/os"]) == 'metadata.labels["kubernetes.io/os"]'
        assert format_path([0, "a"]) == "[0].a"
        assert format_path([]) == ""
