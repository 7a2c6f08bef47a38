"""The files of the vectors."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
# Usual cases, and rare ones: odd amounts, old and lost revisions, fields that Go writes as null.
FILE = DATA / "instancetypes.jsonl.gz"
# The answers of each supported release of KubeVirt, to cases of its own and to one of every rule that differs.
VERSIONS = tuple(sorted((DATA / "versions").glob("*.jsonl.gz")))
