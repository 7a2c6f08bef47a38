from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tests.cli.runner import run
from webhook import __version__
from webhook.cli.main import Lazy


def test_help_imports_nothing_that_is_slow() -> None:
    """`--help` answers in the time that click takes to load."""
    slow = (
        "aiohttp kubernetes_asyncio pydantic msgspec cryptography rich yaml structlog uvloop prometheus_client asyncio"
    )
    program = (
        "import sys\n"
        "from webhook.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print('loaded:', *(m for m in '{slow}'.split() if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "serve" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "review",
        "explain",
        "expand",
        "demo",
        "install",
        "doctor",
        "uninstall",
        "cleanup",
        "manifests",
        "config",
        "version",
    ],
)
def test_every_command_has_help(command: str) -> None:
    assert command in run("--help").output
    assert run(command, "--help").exit_code == 0


def test_version() -> None:
    assert run("--version").output == f"kubevirt-webhook {__version__}\n"
    assert run("version").output.startswith(f"kubevirt-webhook {__version__}\nPython 3.")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["review"], ["expand"], ["serve", "--nonsense"], ["config", "check"]]
)
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_standard_streams(closed: str) -> None:
    command = f"{sys.executable} -m webhook config schema {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_enough_is_no_refusal() -> None:
    command = f"set -o pipefail; {sys.executable} -m webhook config schema | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)

    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_a_full_disk_is_one_sentence() -> None:
    command = f"{sys.executable} -m webhook config schema > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert done.stderr == "Error: the output: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        # An error of asyncio's and one of a socket's: neither says anything by itself.
        (TimeoutError(), "Error: timed out waiting for an answer; check that the API server can be reached"),
        (TimeoutError(110, "Connection timed out"), "Error: timed out waiting for an answer; check that"),
        (ConnectionResetError(), "Error: the output: ConnectionResetError\n"),
        (PermissionError(13, "Permission denied", "a.yaml"), "Error: a.yaml: Permission denied\n"),
    ],
)
def test_an_error_without_a_text_has_a_sentence(error: OSError, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(Lazy, "get_command", lambda *_: click.Command("version", callback=fail))
    result = run("version")

    assert result.exit_code == 2
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1
