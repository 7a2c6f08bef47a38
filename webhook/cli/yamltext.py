"""Objects as YAML that kubectl and the API server read back unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from webhook.k8s.yaml_builder import plain


class _Dumper(yaml.SafeDumper):
    """Quotes text that is a boolean or a number to Kubernetes (``sigs.k8s.io/yaml``) and not to PyYAML."""


# Other YAML 1.1 parsers read these as booleans.
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    """A text of several lines in YAML's block style; where that style cannot hold it, PyYAML quotes it."""
    quoted = None if isinstance(plain(value), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else quoted)


_Dumper.add_representer(str, _text)


def dump(documents: Iterable[Any]) -> str:
    """The documents in block style, their keys in their own order, long texts unbroken."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1000)
    return text
