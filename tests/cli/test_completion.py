"""Completion, as the shells on this machine and kubectl do it."""

from __future__ import annotations

import os
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
    "zsh": """
        autoload -U compinit; compinit -D -u
        compdef() {{ }}; _describe() {{ shift; print -l -- ${{(P)1}} }}; compadd() {{ print -l -- "$@" }}
        words=({line}); CURRENT=$#words
        source ./script
        _kubevirt_webhook_completion
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


@pytest.mark.parametrize("shell", [name for name in ASK if shutil.which(name)])
def test_the_shells_of_this_machine(shell: str, tmp_path: Path) -> None:
    assert {"review", "test", "completion"} <= offered(shell, "kubevirt-webhook ''", tmp_path)
    assert offered(shell, "kubevirt-webhook rev", tmp_path) == {"review"}
    assert "migration" in offered(shell, "kubevirt-webhook explain mig", tmp_path)
    assert "--cluster-from" in offered(shell, "kubevirt-webhook review --clu", tmp_path)
    assert "sarif" in offered(shell, "kubevirt-webhook review --output sa", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    script = run("completion", shell)

    assert script.exit_code == 0
    assert f"_KUBEVIRT_WEBHOOK_COMPLETE={shell}_complete" in script.stdout
    assert "%(" not in script.stdout


@pytest.mark.parametrize(
    ("words", "incomplete", "answer"),
    [
        ([], "revi", None),
        (["review", "-o"], "sar", ["sarif", ":4"]),
        (["review"], "a", [":0"]),
        (["review", "--config"], "", [":0"]),
        (["explain"], "mig", None),
        ([], "nothing", [":4"]),
    ],
)
def test_kubectl_gets_what_cobra_reads(words: list[str], incomplete: str, answer: list[str] | None) -> None:
    found = completion.answer(words, incomplete)

    # Each completion comes with its help text.
    assert found == answer if answer else found[0].startswith((f"{incomplete}ew\t", f"{incomplete}ration\t"))


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": PATH, "KUBECONFIG": "/dev/null"}
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=120, env=environment)


needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")


@needs_kubectl
@pytest.mark.parametrize("name", ["kubevirt-webhook", "kubevirt_webhook"])
def test_a_plugin_of_kubectl(name: str) -> None:
    assert kubectl(name, "version").stdout.startswith(f"kubevirt-webhook {__version__}\n")
    assert kubectl(name, "review", "--help").stdout.startswith("Usage: kubectl kubevirt-webhook review ")
    assert kubectl(name, "reviw").returncode == 2


@needs_kubectl
def test_kubectl_completes_the_plugin() -> None:
    assert "review" in kubectl("__complete", "kubevirt-webhook", "rev").stdout
