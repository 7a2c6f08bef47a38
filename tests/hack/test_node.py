from __future__ import annotations

import os
import sys

import pytest

from hack.node import requirements


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, value, word in (("platform", "darwin", "Linux"), ("platform", "linux", "root")):
        monkeypatch.setattr(sys, attribute, value)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert word in requirements.missing()
        assert "\n" not in requirements.missing()
