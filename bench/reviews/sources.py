"""What the published figures depend on: a change of it makes them those of other code.

Which modules these are is found out and not listed: those that the measured reviews call functions of, and those of
the views that they are decoded into. Of their sources, what cannot change a figure is passed over: comments,
docstrings, the letters of texts, and how lines are broken.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.reviews.payloads import PAYLOADS
from bench.reviews.servers import OUR_PATHS, ROOT
from tests.costs.counted_calls import counted
from webhook.policies.registry import BY_PATH

_HERE: Final = Path(__file__).parent
_OWN: Final = "webhook"
_GO_COMMENT: Final = re.compile(rb"^\s*//(?!go:).*\n?", re.MULTILINE)
# The reviews, the cluster and the settings of the servers, and the sources of the other servers.
_BESIDE: Final = ("settings.yaml", "cluster", "data", "go", "naive.py")
# Before and after the reviewer, whose calls are counted.
_SERVER: Final = tuple(f"webhook/server/{name}.py" for name in ("answers", "app", "bodies", "guard", "listener"))
_DIGITS: Final = 16
_LOCK: Final = "requirements.lock"
_LOCKED: Final = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
# They do their work in C or between the calls that are counted.
_LIBRARIES: Final = frozenset({"aiohttp", "msgspec", "uvloop"})


def digests() -> dict[str, str]:
    """A digest of each source by its place below the root, and the version of each library by its name."""
    called = _called()
    files = {_file(name) for name in called if name.partition(".")[0] == _OWN}
    files |= {path for each in _BESIDE for path in _files(_HERE / each)} | {ROOT / each for each in _SERVER}
    found = {path.relative_to(ROOT).as_posix(): _digest(path) for path in sorted(files)}
    packages = _LIBRARIES | {name.partition(".")[0] for name in called}
    locked = dict(_LOCKED.findall((ROOT / _LOCK).read_text()))
    return found | {f"{_LOCK}: {name}": version for name, version in locked.items() if name in packages}


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The sources that are not what they were, in words."""
    said = {name: "changed" for name in now.keys() & then.keys() if now[name] != then[name]}
    said |= dict.fromkeys(now.keys() - then.keys(), "new on the path")
    said |= dict.fromkeys(then.keys() - now.keys(), "no longer on the path")
    return [f"{name}: {said[name]}" for name in sorted(said)]


def _called() -> set[str]:
    """The modules that the measured reviews run through, those of libraries too."""
    paths = [OUR_PATHS[payload.name] for payload in PAYLOADS]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        calls = runner.run(counted(paths))
    names = {name.partition(":")[0] for each in calls.values() for name in each}
    for path in paths:
        names |= {type_.__module__ for type_ in views(BY_PATH[path].codec.view)}
    return names


def views(view: type[Any]) -> set[type[Any]]:
    """A view, the views of its fields, and those that any of them is derived from."""
    found: set[type[Any]] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(view)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in found:
                continue
            found |= {each for each in info.cls.__mro__ if issubclass(each, msgspec.Struct)}
            waiting += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.Type):
            waiting += _parts(info)
    return found


def _parts(info: msgspec.inspect.Type) -> Iterator[Any]:
    """The types of a union, a list or a dictionary."""
    for name in ("types", "item_type", "item_types", "key_type", "value_type"):
        part = getattr(info, name, ())
        yield from part if isinstance(part, tuple) else (part,)


def normalized(source: str) -> str:
    """A module's source without what cannot change a figure; the same for every Python that can read it."""
    return "\n".join(_lines(ast.parse(source)))


def _lines(node: ast.AST, depth: int = 0) -> Iterator[str]:
    yield f"{' ' * depth}{type(node).__name__}"
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                if not _is_prose(each):
                    yield from _lines(each, depth + 1)
            elif each is not None and not (isinstance(node, ast.Constant) and isinstance(each, str | bytes)):
                yield f"{' ' * depth}.{name} {each!r}"


def _is_prose(node: ast.AST) -> bool:
    """Whether it is a docstring, or another text that nothing is done with."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".py":
        content = normalized(content.decode()).encode()
    elif path.suffix == ".go":
        content = _GO_COMMENT.sub(b"", content)
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _file(module: str) -> Path:
    importlib.import_module(module)
    return Path(sys.modules[module].__file__ or "")


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    else:
        yield from (path for path in place.rglob("*") if path.is_file())
