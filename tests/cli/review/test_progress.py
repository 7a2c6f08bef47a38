from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from webhook.cli.review.progress import progress


def test_nothing_moves_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1 << 30) as advance:
        advance(1)

    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal_goes_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(follower, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(1 << 24) as advance:
            advance(1 << 23)
        stream.flush()
        shown = os.read(leader, 65536).decode()
    os.close(leader)

    assert "━" in shown
    assert "\x1b[2K" in shown
