"""The output of a review of the example."""

from __future__ import annotations

from pathlib import Path

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED: dict[str, dict[str, str]] = yaml.safe_load((EXAMPLES / "expected.yaml").read_text())
