"""The output of commands: lines with control characters escaped, data for programs, and objects as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import click
import yaml

from webhook.admission.credentials import scrub_prose
from webhook.cli.data import directory
from webhook.k8s.yaml_documents import plain
from webhook.text import visible_lines


def line(text: str, *, err: bool = False, color: str | None = None) -> None:
    """Write a line, or several whose line feeds are the program's own."""
    click.echo(click.style(visible_lines(text), color) if color else visible_lines(text), err=err)


# The pages name the examples as they are in a checkout of the repository.
_EXAMPLE: Final = re.compile(r"Error: examples(?:/.*)?: cannot be read: No such file or directory")


def error(text: str) -> None:
    """Write a line on standard error that may quote the content of a file or object."""
    place = f"; the examples of this installation are in {directory('examples')}" if _EXAMPLE.fullmatch(text) else ""
    line(scrub_prose(text) + place, err=True)


def data(text: str) -> None:
    """Write encoded JSON or YAML, in which the encoders have escaped invisible characters."""
    click.echo(text, nl=not text.endswith("\n"))


class _Dumper(yaml.SafeDumper):
    """Quotes text that is a boolean or a number to Kubernetes (``sigs.k8s.io/yaml``) and not to PyYAML."""


def _represent_text(dumper: _Dumper, value: str) -> yaml.Node:
    """A text of several lines in YAML's block style; where that style cannot hold it, PyYAML quotes it."""
    quoted = None if isinstance(plain(value), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else quoted)


_Dumper.add_representer(str, _represent_text)


def dump(documents: Iterable[Any]) -> str:
    """The documents in block style, their keys in their own order, long texts unbroken."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1000)
    return text
