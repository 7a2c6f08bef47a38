from __future__ import annotations

import json

import click
import yaml

from tests.cli.review.samples import HOSTILE, every, result
from webhook.cli.review.formats import Json, Patch, Text, Yaml
from webhook.cli.review.summary import Summary
from webhook.errors import InputError


def test_lines_are_broken_where_a_terminal_ends() -> None:
    long = result("patched", text="a reason of many words " * 10, warnings=["a warning of many words " * 10])
    lines = Text(width=80).fragment(long).splitlines()

    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(Text().fragment(long).splitlines()) == 3


def test_colors_are_on_a_terminal_alone() -> None:
    colored = Text(width=80, color=True).fragment(result("denied", warnings=["w"]))

    assert colored.startswith("\x1b[31m\x1b[1mdenied\x1b[0m")
    assert click.unstyle(colored) == Text(width=80).fragment(result("denied", warnings=["w"]))


def test_quiet_shows_what_needs_attention() -> None:
    shown = [bool(Text(quiet=True).fragment(each)) for each in every()]

    assert shown == [False, True, True, True, True, False, False]


def test_hostile_names_stay_in_their_line() -> None:
    text = Text().fragment(result("denied", text=HOSTILE, message=HOSTILE, name=HOSTILE, warnings=[HOSTILE]))

    assert len(text.splitlines()) == 4
    assert "\x1b" not in text


def test_objects_of_other_kinds_are_not_shown() -> None:
    nothing = Text().document([], Summary(unmatched=2), ())

    assert "does not call kubevirt-webhook" in nothing
    assert Text().document(["a\n", "b\n"], Summary(), ()) == "a\n\nb\n"


def test_json_is_one_object_or_a_list() -> None:
    fragments = [Json().fragment(each) for each in every()]

    assert json.loads(Json().document(fragments, Summary(), ()))[3]["message"] == "denied: because"
    assert json.loads(Json().document(fragments[:1], Summary(), ()))["source"] == "apps/vm.yaml:7"
    assert json.loads(Json().document([], Summary(), ())) == []
    assert Json().document([], Summary(), [InputError("x")]) == ""


def test_what_makes_the_reviewed_object_is_shown_itself() -> None:
    made = result("patched", object={"kind": "VirtualMachine"}, given={"kind": "VirtualMachinePool"})
    documents = Yaml().document([Yaml().fragment(made), Yaml().fragment(result(object={"a": 1}))], Summary(), ())

    assert list(yaml.safe_load_all(documents)) == [{"kind": "VirtualMachinePool"}, {"a": 1}]
    assert Yaml().fragment(result()) == ""


def test_patches() -> None:
    operation = {"op": "add", "path": "/a", "value": 1}

    assert json.loads(Patch().document([Patch().fragment(result(patch=[operation]))], Summary(), ())) == [operation]
