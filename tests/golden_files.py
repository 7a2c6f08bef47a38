"""What users read, held in one place: ``tests/golden/``, one file for each screen or catalogue of texts.

Tests assert codes, fields, patches and statuses; a text stands in a golden file alone, so that rewording is one
command, ``make golden``, and one diff to read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

GOLDEN: Final = Path(__file__).parent / "golden"
_REWRITE: Final = "REWRITE_GOLDEN"


def check(name: str, text: str) -> None:
    """Compare a text with the golden file of that name; rewrite the file instead where ``REWRITE_GOLDEN`` is set.

    Args:
        name: the file's, below ``tests/golden/``, for example ``doctor-spread.txt``.

    Raises:
        AssertionError: the texts differ, or the file is not there.
    """
    path = GOLDEN / name
    if os.environ.get(_REWRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else f"{text}\n")
        return
    assert path.exists(), f"there is no tests/golden/{name}; write it with `make golden`, and read it"
    assert text.rstrip("\n") == path.read_text().rstrip("\n"), f"tests/golden/{name} differs; `make golden` rewrites it"


def check_json(name: str, value: Any) -> None:
    """As `check`, of a value that becomes JSON."""
    check(name, json.dumps(value, indent=2, ensure_ascii=False))
