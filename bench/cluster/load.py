"""How objects come, and the client that creates them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster.objects import SCHEDULER, Body, ObjectKind
from bench.reviews.errors import MissingToolError, run
from tests.e2e.support.access import Access

_SOURCES: Final = Path(__file__).with_name("create")
# The client waits so long for an answer, and ends by itself.
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """How objects come: at a rate, whatever the answers do, or from some users, each of whom waits for its answer.

    Attributes:
        key: what figures are kept under.
        title: what tables call it.
        seconds: how long.
        per_second: objects in a second; 0: users create them.
        burst: how many of them come at the same moment.
        users: how many.
    """

    key: str
    title: str
    seconds: float
    per_second: int = 0
    burst: int = 1
    users: int = 0


class Series(NamedTuple):
    """What is created.

    Attributes:
        kind: of the objects.
        namespace: where.
        items: the objects, by turns.
        written: whether they should get their scheduler. The API server passes over a webhook that fails, so its
            status alone would show nothing.
    """

    kind: ObjectKind
    namespace: str
    items: Sequence[Body]
    written: bool


class Creations(NamedTuple):
    """What some creations have shown.

    Attributes:
        milliseconds: of each object that was created as it should be, the whole request of the client.
        failed: how many were not, by what was wrong.
        seconds: from the first request to the last answer.
    """

    milliseconds: Sequence[float]
    failed: Mapping[str, int]
    seconds: float

    @property
    def objects(self) -> int:
        """All that were to be created."""
        return len(self.milliseconds) + sum(self.failed.values())


def build(cache: Path) -> Path:
    """The client's program, built where its source has changed.

    Raises:
        MissingToolError: there is no Go.
        BenchError: the build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingToolError("the benchmark builds its client and `go` is not on PATH: install Go 1.26 or newer")
    program = cache / "bin" / "create"
    program.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"}
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
    run("building the client", command, cwd=_SOURCES, environment=environment)
    return program


def create(plane: Access, program: Path, series: Series, arrival: Arrival) -> Creations:
    """Create objects as dry runs: admission is the same, and the store does not grow.

    Args:
        plane: the control plane.
        program: the client, from `build`.
        series: what is created.
        arrival: how it comes.

    Raises:
        BenchError: the client failed; an object that was not created is no such failure.
    """
    kind = series.kind
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=plane.directory) as file:
        file.writelines(f"{json.dumps(item)}\n" for item in series.items)
        file.flush()
        command = [
            str(program),
            f"-url={plane.server}{kind.path(series.namespace)}",
            f"-bodies={file.name}",
            f"-ca={plane.pki.ca}",
            f"-identity={plane.pki.client(*kind.sender)}",
            f"-users={arrival.users}",
            f"-rate={arrival.per_second}",
            f"-burst={arrival.burst}",
            f"-duration={arrival.seconds}s",
            f"-field={'.'.join(kind.field)}",
            f"-value={SCHEDULER}",
            f"-wanted={'true' if series.written else 'false'}",
        ]
        shown = json.loads(run(f"creating {kind.plural}", command, seconds=arrival.seconds + _PATIENCE_SECONDS))
    return Creations(shown["milliseconds"], shown["failed"], shown["seconds"])
