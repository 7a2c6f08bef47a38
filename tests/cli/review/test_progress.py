from __future__ import annotations

import contextlib
import os
import pty
import sys

import pytest

from webhook.cli.review.progress import progress


def test_nothing_moves_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1 << 30) as advance:
        advance(1)

    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(follower, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(1 << 24) as advance:
            advance(1 << 23)
    shown = b""
    # What was written to a terminal can still be read after it was closed, in pieces, and then nothing any more.
    with contextlib.suppress(OSError):
        while piece := os.read(leader, 65536):
            shown += piece
    os.close(leader)

    assert "━" in shown.decode()
    assert "\x1b[2K" in shown.decode()
