"""What the pages give readers to apply, as the tests apply it."""

import re
from pathlib import Path

import yaml

from .kube import Json

DOCS = Path(__file__).parents[3] / "docs"


def documents_under(page: str, heading: str) -> list[Json]:
    """All YAML documents under a heading of third order, in as many blocks as the page has there, in their order."""
    _, _, rest = (DOCS / page).read_text().partition(f"\n### {heading}\n")
    (section, *_) = re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)
    blocks = re.findall(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert blocks, f"docs/{page} has no YAML under {heading!r}"
    return [document for block in blocks for document in yaml.safe_load_all(block)]
