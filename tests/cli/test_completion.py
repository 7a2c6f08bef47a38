"""Completion, as the shells on this machine and kubectl do it."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runner import run
from webhook import __version__
from webhook.cli import completion

BIN = Path(sys.executable).parent
PATH = f"{BIN}{os.pathsep}{os.environ['PATH']}"
# What makes each shell report what it would offer after a line.
ASK = {
    "bash": """
        source ./script
        COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _kubevirt_webhook_completion kubevirt-webhook
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "fish": "source ./script; complete -C '{line}'",
}


def offered(shell: str, line: str, directory: Path) -> set[str]:
    (directory / "script").write_text(run("completion", shell).stdout)
    command = [shell, "-c", ASK[shell].format(line=line)]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": PATH}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {line.split("\t")[0].split(":")[0] for line in done.stdout.splitlines() if line}


def needed(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is missing; on Debian it is the package {shell}")


@pytest.mark.parametrize("shell", list(ASK))
def test_what_shells_offer(shell: str, tmp_path: Path) -> None:
    needed(shell)
    assert {"review", "test", "completion"} <= offered(shell, "kubevirt-webhook ''", tmp_path)
    assert offered(shell, "kubevirt-webhook rev", tmp_path) == {"review"}
    assert "migration" in offered(shell, "kubevirt-webhook explain mig", tmp_path)
    assert "--cluster-from" in offered(shell, "kubevirt-webhook review --clu", tmp_path)
    assert "sarif" in offered(shell, "kubevirt-webhook review --output sa", tmp_path)


# zsh completes only while it edits a line, so it gets a terminal. Ctrl-X shows what the line has become.
EDITING = """
PROMPT= PS2= RPROMPT= PROMPT_SP=
autoload -U compinit; compinit -D -u
source ./script
show() { print -r -- "<$BUFFER>"; exit }
zle -N show
bindkey '^I' complete-word '^X' show
precmd() { print -r -- '<ready>' }
"""


def completed(line: str, directory: Path) -> str:
    """The line of zsh after a tab."""
    (directory / "script").write_text(run("completion", "zsh").stdout)
    (directory / ".zshrc").write_text(EDITING)
    child, terminal = pty.fork()
    if not child:
        os.chdir(directory)
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, "PATH": PATH, "ZDOTDIR": str(directory), "TERM": "dumb"})
    written = b""
    while b"<ready>" not in written:
        written = written + os.read(terminal, 4096)
    os.write(terminal, f"{line}\t\x18".encode())
    written = b""
    while not (found := re.search(rb"<(kubevirt-webhook .*?)>", written)):
        written = written + os.read(terminal, 4096)
    os.close(terminal)
    os.waitpid(child, 0)
    return found[1].decode()


def test_what_zsh_completes(tmp_path: Path) -> None:
    needed("zsh")
    assert completed("kubevirt-webhook rev", tmp_path) == "kubevirt-webhook review "
    assert completed("kubevirt-webhook explain mig", tmp_path) == "kubevirt-webhook explain migration "
    assert completed("kubevirt-webhook review --clu", tmp_path) == "kubevirt-webhook review --cluster-from "
    assert completed("kubevirt-webhook review --output sa", tmp_path) == "kubevirt-webhook review --output sarif "


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert f"_KUBEVIRT_WEBHOOK_COMPLETE={shell}_complete" in script.stdout
    assert "%(" not in script.stdout


@pytest.mark.parametrize(
    ("words", "incomplete", "answer"),
    [
        *(([], "revi", None), (["review", "-o"], "sar", ["sarif", ":4"]), (["review"], "a", [":0"])),
        *((["review", "--config"], "", [":0"]), (["explain"], "mig", None), ([], "nothing", [":4"])),
    ],
)
def test_kubectl_gets_what_cobra_reads(words: list[str], incomplete: str, answer: list[str] | None) -> None:
    found = completion.answer(words, incomplete)
    # Each completion comes with its help text.
    assert found == answer if answer else found[0].startswith((f"{incomplete}ew\t", f"{incomplete}ration\t"))


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": PATH, "KUBECONFIG": "/dev/null"}
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
def test_a_plugin_of_kubectl() -> None:
    assert kubectl("kubevirt_webhook", "version").stdout.startswith(f"kubevirt-webhook {__version__}\n")
    assert kubectl("kubevirt-webhook", "review", "--help").stdout.startswith("Usage: kubectl kubevirt-webhook review ")
    assert kubectl("kubevirt-webhook", "reviw").returncode == 2
    assert "review" in kubectl("__complete", "kubevirt-webhook", "rev").stdout
