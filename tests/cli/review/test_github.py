from __future__ import annotations

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from tests.cli.review.samples import HOSTILE, every, result
from webhook.admission.reasons import MEANINGS
from webhook.cli.review.github import Github, command
from webhook.cli.review.summary import Summary
from webhook.errors import InputError
from webhook.text import visible

# As the runner reads a line: the command, its properties up to the first "::", the message.
COMMAND = re.compile(r"::(error|warning) file=([^,:]*),line=([0-9]+),title=([^,:]*)::(.*)")


def test_what_needs_attention_is_annotated() -> None:
    fragments = [fragment for each in every() if (fragment := Github().fragment(each))]

    assert [each.partition(" ")[0] for each in fragments] == ["::warning", "::warning", "::error", "::error"]
    assert fragments[2] == (
        "::error file=apps/vm.yaml,line=7,title=VirtualMachine shop/web%3A denied"
        f"::denied: because [instancetype-denied]%0AWhat to do: {MEANINGS['instancetype-denied'].remedy}"
    )
    assert "::take care%0Atwice [scheduler-injected]%0A" in fragments[1]


def test_each_code_leads_to_its_fix_once() -> None:
    warnings = ["a [no-such-code]", "b [instancetype-missing]", "c [instancetype-missing]"]
    fragment = Github().fragment(result("allowed", "instancetype-missing", warnings=warnings))
    lines = fragment.split("%0A")

    assert lines[3:] == [f"What to do: {MEANINGS['instancetype-missing'].remedy}"]


def test_bad_input_is_annotated() -> None:
    text = Github().document(["::error ::x"], Summary(), [InputError("is broken", "a.yaml:3: spec", "mend it")])

    assert text.splitlines()[1] == ("::error file=a.yaml,line=3,title=bad input::a.yaml:3: spec: is broken; mend it")


def test_no_object_can_give_a_command() -> None:
    hostile = result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file=HOSTILE, origin=HOSTILE)
    fragment = Github().fragment(hostile)

    assert fragment.count("\n") == 0
    assert COMMAND.fullmatch(fragment)


@given(st.text(), st.text(), st.text())
def test_the_runner_reads_what_was_written(file: str, title: str, text: str) -> None:
    line = command("error", file, 3, title, text)
    read = COMMAND.fullmatch(line)

    assert read
    assert len(line.splitlines()) == 1
    if visible(text) == text:
        assert unquote(read[5]) == text
