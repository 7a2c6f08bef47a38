"""Objects of a file of YAML, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from bench.cluster.plane import CreationPlane
from tests.e2e.support.kube import Json, KubeError, eventually

# Only what is broken takes so long.
_PATIENCE_SECONDS: Final = 60.0


@contextmanager
def applied(plane: CreationPlane, file: Path) -> Iterator[None]:
    """Have the objects of a file for as long as the context lasts."""
    documents: list[Json] = [*yaml.safe_load_all(file.read_text())]
    for document in documents:
        # Kyverno is called for its policies before it has its certificate.
        eventually(partial(plane.admin.apply, document), what=f"{file.name} to be applied", timeout=_PATIENCE_SECONDS)
    try:
        yield
    finally:
        for document in documents:
            with suppress(KubeError):
                plane.admin.delete(plane.admin.resource_of(document), document["metadata"]["name"])
