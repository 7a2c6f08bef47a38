from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hack import interpreters

ROOT = Path(__file__).parents[2]


def test_the_interpreters_of_the_image_and_of_this_run_are_supported() -> None:
    images = re.findall(r"python:(3\.\d+)", (ROOT / "Dockerfile").read_text())
    assert images
    assert {*images, "{}.{}".format(*sys.version_info[:2])} <= set(interpreters.supported())


def test_without_uv_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")

    assert interpreters.main(["--resolution", "lowest"]) == 2
    assert capsys.readouterr().err == "interpreters: error: uv is missing; install it with `pipx install uv`\n"
