"""How long a module may be: one noun a file, short enough to be read in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 400


def long_modules(folder: Path) -> dict[str, int]:
    """The modules below a folder that have too many lines, and how many they have."""
    lengths = {str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in folder.rglob("*.py")}
    return {path: length for path, length in lengths.items() if length > MOST_LINES}


@pytest.mark.parametrize("package", ["bench", "certs", "hack", "tests", "webhook"])
def test_no_module_is_too_long(package: str) -> None:
    assert long_modules(ROOT / package) == {}


def test_a_long_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "short.py").write_text("x = 1\n" * MOST_LINES)
    (tmp_path / "inner" / "long.py").write_text("x = 1\n" * (MOST_LINES + 1))

    assert long_modules(tmp_path) == {"inner/long.py": MOST_LINES + 1}
