from __future__ import annotations

import pytest

from webhook.errors import MAX_SENTENCE, InputError, InputErrors, quote


def test_a_sentence_says_where_what_and_what_to_do() -> None:
    assert str(InputError("it is wrong", "a.yaml:3", "write it right")) == "a.yaml:3: it is wrong; write it right"
    assert str(InputError("it is wrong")) == "it is wrong"
    # Several mistakes are a line each.
    both = InputErrors([InputError("one", "a"), InputError("two", "b", "fix")])
    assert (str(both), [mistake.what for mistake in both.mistakes]) == ("a: one\nb: two; fix", ["one", "two"])


def test_quotes_and_sentences_stay_one_line_and_show_what_is_in_them() -> None:
    assert (quote('a"b\n'), quote("x" * 61)) == ('"a\\"b\\n"', f'"{"x" * 57}..."')
    assert (quote("\ud800"), quote("\u202e\x9b\x1b")) == ('"\ufffd"', '"\\u202e\\x9b\\u001b"')
    hostile = InputError("is wrong\nError: nothing", "a\x1b[2J.yaml:1", "remove \u202e")
    assert str(hostile) == "a\\x1b[2J.yaml:1: is wrong\\nError: nothing; remove \\u202e"
    assert str(InputErrors([hostile, hostile])).split("\n") == [str(hostile)] * 2


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x1b" * 100_000, "\U000e0001" * 100_000])
def test_a_sentence_ends_whatever_it_quotes_and_still_says_what_to_do(text: str) -> None:
    sentence = str(InputError(f"it is {text}", text, "write it right"))
    assert len(sentence) <= MAX_SENTENCE
    assert sentence.endswith("; write it right")
    assert ": it is " in sentence
    assert len(str(InputError(text, text, text))) <= MAX_SENTENCE
    assert len(str(InputErrors([InputError(text), InputError(text)]))) <= 2 * MAX_SENTENCE + 1
