"""The scenes of the recording: commands that are really run, over the example cluster."""

from __future__ import annotations

from typing import Final, NamedTuple

from hack.recording.terminal import on_terminal

COLUMNS: Final = 88
ROWS: Final = 24
_CLUSTER: Final = "--cluster-from examples/cluster"


class Scene(NamedTuple):
    """One command.

    Attributes:
        title: what it shows, as a comment above the prompt.
        command: the words after ``kubevirt-webhook``.
        seconds: how long its output is shown.
        status: the exit status that it has to have.
    """

    title: str
    command: str
    seconds: float
    status: int = 0


# With the time of typing, together a minute.
SCENES: Final = (
    Scene("A VM that names no scheduler", f"review examples/vms/named.yaml {_CLUSTER}", 7),
    Scene("Why can this VM not migrate there?", f"explain migration shop/db --to zone=b {_CLUSTER}", 10, 1),
    Scene("A reason code leads to the fix", "explain reason selector-conflict", 6),
    Scene("Before you drain a node", "explain drain node-1 --cluster-from examples/drain", 14, 1),
    Scene("Decisions as tests, for pipelines", "test examples", 4),
)


def output(scene: Scene) -> str:
    """What a scene's command writes on a terminal, with its colors.

    Raises:
        RuntimeError: the command ends with another status than the scene says.
    """
    written, status = on_terminal(*scene.command.split(), columns=COLUMNS, rows=ROWS)
    if status != scene.status:
        raise RuntimeError(f"{scene.command} ended with status {status}: {written}")
    return written
