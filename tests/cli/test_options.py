"""An option is spelled the same, and takes the same, in every command that has it."""

from __future__ import annotations

from collections import defaultdict

import click
import pytest

from tests.cli.runner import commands


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


def test_every_option_has_a_help() -> None:
    missing = [
        f"{name} {option.opts[-1]}"
        for name, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and not option.help and not option.hidden
    ]

    assert missing == []


def test_every_command_that_connects_can_act_as_another_user() -> None:
    """As with kubectl: these options stand together, so that none can be missing where the others are."""
    connection = {"--kubeconfig", "--as", "--as-group", "--as-uid"}
    connecting = []
    for name, command in commands():
        spelled = [spelled for option in command.params for spelled in option.opts]
        assert len(spelled) == len({*spelled}), name
        options = connection & {*spelled}
        if options:
            assert options == connection, name
            connecting.append(name)
    assert {"install", "uninstall", "cleanup", "doctor", "expand", "review", "hand-over", "serve"} <= {*connecting}
    assert {"explain vm", "explain migration", "explain drain", "explain update", "explain spread"} <= {*connecting}
