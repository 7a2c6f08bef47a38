"""What the benchmarks' command lines have in common: types for argparse that say what is wrong before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path


def at_least(least: int) -> Callable[[str], int]:
    """A whole number from ``least`` on."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def writable(name: str) -> Path:
    """A file that can be written: said before a minute of measuring, not after."""
    path = Path(name)
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{name} can't be written")
    return path
