"""What is the same for all commands; completion, as the shells on this machine and kubectl do it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.runner import Ended, Refused, commands, run
from tests.cli.terminal import Terminal
from tests.cluster.fake_apiserver import FakeApiServer
from tests.golden_files import Golden
from webhook import __version__
from webhook.cli import completion
from webhook.cli.main import Lazy, main


def test_help_imports_nothing_that_is_slow() -> None:
    """`--help` answers in the time that click takes to load."""
    slow = "aiohttp kubernetes_asyncio pydantic msgspec cryptography rich yaml uvloop prometheus_client asyncio"
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
    ("words", "is_done"), [(("drain", "--rolling"), True), (("update",), True), (("vm", "-h"), False)]
)
def test_plans_do_not_load_what_reviews_requests(words: tuple[str, ...], is_done: bool) -> None:
    """They need what policies add to pods, and no more; and no collector, which runs again afterwards."""
    slow = "webhook.review.reviewer webhook.forecast.requests"
    cluster = ("--cluster-from", "examples/drain")
    program = (
        "import gc, sys\nfrom webhook.cli.main import main\n"
        f"try:\n    main(['explain', *{words + cluster!r}])\nexcept SystemExit:\n    pass\n"
        f"print(gc.isenabled(), [each for each in '{slow}'.split() if each in sys.modules] == [])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == f"True {is_done}"


@pytest.mark.parametrize("package", ["webhook", "certs"])
@pytest.mark.parametrize("content", ["", "DISTRIBUTION = 'another'\n"])
def test_a_package_of_another_distribution_is_one_sentence_before_anything_runs(
    tmp_path: Path, package: str, content: str
) -> None:
    """pip installs one distribution's package over that of another, in silence."""
    root = Path(str(sys.modules["webhook"].__file__)).parents[1]
    for name in ("webhook", "certs"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    (tmp_path / package / "__init__.py").write_text('__version__ = "9"\n' + content)

    command = [sys.executable, "-m", "webhook.cli.main", "version"]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f'the package "{package}" in {tmp_path / package}' in done.stderr


@pytest.mark.parametrize(
    "arguments",
    ["test examples", "config check examples/settings.yaml", "explain drain node-1 --cluster-from examples/drain"],
)
def test_outside_a_checkout_the_examples_of_the_pages_are_told_where_they_are(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(*arguments.split()).output
    (place,) = re.findall(
        r"No such file or directory; the examples of this installation are in (/.*/examples)$", said, re.MULTILINE
    )
    assert (Path(place) / "settings.yaml").exists()
    # Of other files there are no such ones.
    assert "examples of this installation" not in run("test", "mine").output


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_every_command_has_help(command: str, ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(run(*command.split(), "--help"), 0)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*command.split(), "--help").output.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage:")], "a cut sentence"


# The options that several commands have, in the order in which every help shows them.
ORDER = (
    *("--namespace", "--cluster-from", "--kubeconfig", "--kubevirt-version", "--config", "--url", "--output"),
    "--show-secrets",
)


def test_every_command_has_its_options_once_in_the_same_order_and_with_a_help() -> None:
    for name, command in commands():
        spelled = [one for option in command.params for one in option.opts]
        ordered = [one for one in spelled if one in ORDER]
        assert (len(spelled), ordered) == (len({*spelled}), sorted(ordered, key=ORDER.index)), name
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        assert [option.name for option in options if not option.help] == [], name


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        *(
            ("reviw", "review"),
            ("tset", "test"),
            ("explain migratoin", "migration"),
            ("explain vmm", "vm"),
            ("review --confg", "--config"),
        ),
        *((words, "") for words in ("xyzzy", "review", "expand", "serve --xyzzy", "config check")),
    ],
)
def test_wrong_usage_is_exit_2_and_a_mistyped_word_gets_a_suggestion(words: str, meant: str) -> None:
    result = run(*words.split())
    assert (result.exit_code, "Did you mean" in result.stderr, meant in result.stderr) == (2, bool(meant), True)


@pytest.mark.parametrize("command", ["version", "config schema"])
@pytest.mark.parametrize("prompt", [False, True])
def test_ctrl_c_is_exit_130(command: str, prompt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    callback = (lambda **_: click.confirm("?")) if prompt else interrupt
    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    monkeypatch.setattr(dict(commands())[command], "callback", callback)
    with pytest.raises(SystemExit) as ended:
        main(command.split(), prog_name="kubevirt-webhook")

    assert ended.value.code == 130


def test_ctrl_c_ends_a_wait_for_the_cluster(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = FakeApiServer()
        config.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        # A shell lets its background jobs ignore Ctrl-C, and their children inherit that.
        program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import webhook.__main__"
        command = [sys.executable, "-c", program, "doctor", "--kubeconfig", config.kubeconfig(tmp_path / "config")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            silent.settimeout(120)
            connection, _ = silent.accept()
            assert connection.recv(1), "it waits for an answer now"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            connection.close()

    assert (process.returncode, out, err) == (130, "", "")


def test_ctrl_c_before_a_command_runs_is_no_answer() -> None:
    """click ends with exit status 1, which says "denied" or "failed"."""
    program = (
        "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from webhook.cli import main\n"
        "main.Lazy.make_context = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "main.main(['version'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_version() -> None:
    assert run("--version").output == f"kubevirt-webhook {__version__}\n"
    assert run("version").output.startswith(f"kubevirt-webhook {__version__}\nPython 3.")


def shell(words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = f"{before}{sys.executable} -m webhook {words}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_standard_streams(closed: str) -> None:
    done = shell(f"version {closed}")
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_enough_is_no_refusal() -> None:
    done = shell("config schema | true", "set -o pipefail; ")
    assert (done.returncode in (0, 141), done.stderr) == (True, "")


@pytest.mark.parametrize("words", ["config schema", "--help", "--version", "explain --help"])
def test_a_full_disk_is_one_sentence(words: str, golden: Golden) -> None:
    done = shell(f"{words} > /dev/full")
    assert done.returncode == 2
    golden(done.stderr)


@pytest.mark.parametrize(
    "error",
    [
        # An error of asyncio's and one of a socket's: neither says anything by itself.
        TimeoutError(),
        TimeoutError(110, "Connection timed out"),
        ConnectionResetError(),
        PermissionError(13, "Permission denied", "a.yaml"),
    ],
    ids=["asyncio", "socket", "reset", "file"],
)
def test_an_error_without_a_text_has_a_sentence(
    error: OSError, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(Lazy, "get_command", lambda *_: click.Command("version", callback=fail))
    refused(run("version"))


def test_an_option_reads_the_same_everywhere() -> None:
    spellings: dict[str, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in commands():
        for option in command.params:
            if isinstance(option, click.Option):
                for spelled in (one for one in option.opts if one.startswith("--")):
                    spellings[spelled][tuple(option.opts), option.metavar, option.type.name].append(name)

    assert {option: [*found.values()] for option, found in spellings.items() if len(found) > 1} == {}
    assert {name: [*spellings[name]] for name in ("--config", "--url", "--kubeconfig", "--output")} == {
        "--config": [(("--config",), "FILE", "path")],
        "--url": [(("--url",), "URL", "text")],
        "--kubeconfig": [(("--kubeconfig",), "FILE", "path")],
        "--output": [(("-o", "--output"), None, "choice")],
    }


def test_an_empty_path_is_never_the_working_directory() -> None:
    """``review "$FILE"`` with an unset variable reviewed all files below the directory."""
    paths = [
        (f"{name} {parameter.opts[-1]}", parameter.type)
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter.type, click.Path)
    ]

    assert {"review files", "explain drain --cluster-from", "expand --filename"} <= {name for name, _ in paths}
    for name, type_ in paths:
        with pytest.raises(click.BadParameter):
            pytest.fail(f"{name}: {type_.convert('', None, None)!r}")


@pytest.mark.control("impersonation-is-sent")
def test_every_command_that_connects_can_act_as_another_user() -> None:
    """As with kubectl: these options stand together, so that none can be missing where the others are."""
    connection = {"--kubeconfig", "--as", "--as-group", "--as-uid"}
    connecting = []
    for name, command in commands():
        options = connection & {spelled for option in command.params for spelled in option.opts}
        if options:
            assert options == connection, name
            connecting.append(name)
    assert {"install", "uninstall", "cleanup", "doctor", "expand", "review", "hand-over", "serve"} <= {*connecting}
    assert {"explain vm", "explain migration", "explain drain", "explain update", "explain spread"} <= {*connecting}


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
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, env={**os.environ, "PATH": PATH})
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
    environ = {**os.environ, "PATH": PATH, "ZDOTDIR": str(directory), "TERM": "dumb"}
    with Terminal(["zsh", "-i"], environ, directory) as terminal:
        terminal.find(b"<ready>")
        terminal.type(f"{line}\t\x18".encode())
        return terminal.find(rb"<(kubevirt-webhook .*?)>")[1].decode()


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
        (
            ["explain", "reason"],
            "no-eligible",
            ["no-eligible-node\tmigration, eviction, preemption, plans", ":4"],
        ),
    ],
)
def test_kubectl_gets_what_cobra_reads(words: list[str], incomplete: str, answer: list[str] | None) -> None:
    found = completion.answer(words, incomplete)
    # Each completion comes with its help text.
    assert found == answer if answer else found[0].startswith((f"{incomplete}ew\t", f"{incomplete}ration\t"))


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": PATH, "KUBECONFIG": "/dev/null"}
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, env=environment)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
def test_a_plugin_of_kubectl() -> None:
    assert kubectl("kubevirt_webhook", "version").stdout.startswith(f"kubevirt-webhook {__version__}\n")
    assert kubectl("kubevirt-webhook", "review", "--help").stdout.startswith("Usage: kubectl kubevirt-webhook review ")
    assert kubectl("kubevirt-webhook", "reviw").returncode == 2
    assert "review" in kubectl("__complete", "kubevirt-webhook", "rev").stdout
