"""Writes the pages, or with ``--check`` reports which of them do not describe the code as it is."""

from __future__ import annotations

import sys

from hack.reference import outdated, write

if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        names = outdated()
        sys.exit(f"not up to date: {', '.join(names)}; run make docs" if names else 0)
    write()
