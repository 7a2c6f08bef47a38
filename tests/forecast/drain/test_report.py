"""The plan as JSON: the page names every field that the command prints, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from webhook.forecast.drain.report import SCHEMA, BlockedPod, DrainPlan, Limits, Remedy, Step, VmPlan

PAGE = Path(__file__).parents[3] / "docs" / "drain.md"


def test_every_field_is_on_the_page() -> None:
    section = PAGE.read_text().partition("## The plan as JSON")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-zA-Z]+)(?:\[\])?`", section)) | set(re.findall(r"([a-zA-Z]+)\[\]", section))
    printed = {
        field.encode_name
        for shape in (DrainPlan, Step, VmPlan, BlockedPod, Remedy, Limits)
        for field in msgspec.structs.fields(shape)
    }

    assert SCHEMA in section
    assert printed - named == set()
    assert named - printed <= {"moves", "blocks", "null"}
