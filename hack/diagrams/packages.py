"""The picture of the packages: the layers of .importlinter, and who really imports whom."""

from __future__ import annotations

import ast
import configparser
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hack.diagrams import svg

Graph = dict[str, set[str]]

_BOX_HEIGHT: Final = 32
_ROW: Final = 74
_GAP: Final = 36
_MARGIN: Final = 28
_ROUNDS: Final = 12


def layers(root: Path) -> list[list[str]]:
    """The layers that import-linter holds, from top to bottom, without the prefix ``webhook.``."""
    config = configparser.ConfigParser()
    config.read(root / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip().removeprefix("webhook.") for name in line.split("|")] for line in lines if line.strip()]


def imports(root: Path) -> Graph:
    """Which packages the modules of each package or top-level module of ``webhook`` import; ``certs`` is one too."""
    graph: Graph = {}
    for file in [*sorted((root / "webhook").rglob("*.py")), *sorted((root / "certs").rglob("*.py"))]:
        module = file.relative_to(root).with_suffix("").parts
        source = _package(module)
        targets = {_package(tuple(name.split("."))) for name in _imported(ast.parse(file.read_text()))}
        graph.setdefault(source, set()).update(targets - {source, ""})
    return {source: targets & graph.keys() for source, targets in graph.items() if source}


def _package(module: tuple[str, ...]) -> str:
    """The box that a module is in; empty for what has none: other projects, and ``webhook`` itself."""
    if module[0] == "certs":
        return "certs"
    return module[1] if module[0] == "webhook" and len(module) > 1 and not module[1].startswith("__") else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def without_implied(graph: Mapping[str, set[str]]) -> Graph:
    """The imports that do not follow from others: ``a > c`` is left out where ``a > b`` and ``b > c`` are there."""
    return {
        source: {one for one in targets if not any(one in _reachable(graph, other) for other in targets - {one})}
        for source, targets in graph.items()
    }


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def draw(root: Path) -> str:
    """The picture as SVG."""
    graph = without_implied(imports(root))
    rows = layers(root)
    known = {name for row in rows for name in row}
    depth = {name: number for number, row in enumerate(rows) for name in row}
    for name in sorted(graph.keys() - known):
        depth[name] = _place(name, graph, depth)
        rows[depth[name]].append(name)
    chains = [_chain(source, target, depth) for source in sorted(graph) for target in sorted(graph[source])]
    for chain in chains:
        for number, stop in enumerate(chain[1:-1], depth[chain[0]] + 1):
            rows[number].append(stop)
    _order(rows, chains)
    return _drawn(rows, chains, known | graph.keys())


def _place(name: str, graph: Graph, depth: Mapping[str, int]) -> int:
    """The row of a package that no layer names: above what it imports, or below what imports it."""
    imported = [depth[one] - 1 for one in graph[name] if one in depth]
    below = max((depth[one] + 1 for one in graph if name in graph[one] and one in depth), default=0)
    return max(min(imported), below) if imported else below


def _chain(source: str, target: str, depth: Mapping[str, int]) -> list[str]:
    """The stops of an arrow, one in each layer that it passes."""
    between = range(depth[source] + 1, depth[target])
    return [source, *(f"{source} > {target} at {number}" for number in between), target]


def _order(rows: list[list[str]], chains: list[list[str]]) -> None:
    """Sort each row by where its neighbors are, again and again, so that few arrows cross."""
    neighbors: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for chain in chains:
        for above, below in itertools.pairwise(chain):
            neighbors[above].append(below)
            neighbors[below].append(above)
    for _ in range(_ROUNDS):
        place = {name: (number + 0.5) / len(row) for row in rows for number, name in enumerate(row)}
        for row in rows:
            row.sort(key=lambda name: (_mean([place[one] for one in neighbors[name]], place[name]), name))
            place.update({name: (number + 0.5) / len(row) for number, name in enumerate(row)})


def _mean(values: list[float], otherwise: float) -> float:
    return round(sum(values) / len(values), 6) if values else otherwise


def _drawn(rows: list[list[str]], chains: list[list[str]], boxes: set[str]) -> str:
    sizes = {name: svg.width_of(name, 14) + 26 if name in boxes else 0.0 for row in rows for name in row}
    width = int(max(sum(sizes[name] + _GAP for name in row) for row in rows) + 2 * _MARGIN)
    middle: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        spare = (width - 2 * _MARGIN - sum(sizes[name] for name in row)) / (len(row) + 1)
        x = float(_MARGIN)
        for name in row:
            x += spare
            middle[name] = (round(x + sizes[name] / 2, 1), _MARGIN + 26 + number * _ROW + _BOX_HEIGHT / 2)
            x += sizes[name]
    parts = [
        svg.rectangle(_MARGIN / 2, _MARGIN + 14 + number * _ROW, width - _MARGIN, _BOX_HEIGHT + 24, "band")
        for number in range(len(rows))
    ]
    parts.append(
        svg.text(_MARGIN, 26, "An arrow means: imports. Arrows that follow from others are left out.", css="quiet")
    )
    parts += [svg.path(_curve([middle[stop] for stop in chain])) for chain in chains]
    for name in sorted(boxes):
        x, y = middle[name]
        left, box_width = round(x - sizes[name] / 2, 1), round(sizes[name], 1)
        parts.append(svg.rectangle(left, y - _BOX_HEIGHT / 2, box_width, _BOX_HEIGHT))
        parts.append(svg.text(x, y + 5, name, size=14, anchor="middle"))
    height = 2 * _MARGIN + 26 + len(rows) * _ROW - (_ROW - _BOX_HEIGHT) + 4
    return svg.document(width, height, "The packages, in layers, and which of them import which", parts)


def _curve(stops: list[tuple[float, float]]) -> str:
    """From the lower edge of the first box to the upper edge of the last, straight down where it passes a layer."""
    half = _BOX_HEIGHT / 2
    x, y = stops[0]
    data = [f"M{x:g} {y + half:g}"]
    y += half
    for number, (to_x, to_y) in enumerate(stops[1:], 1):
        top, bend = to_y - half, (to_y - half - y) / 2
        data.append(f"C{x:g} {y + bend:g} {to_x:g} {top - bend:g} {to_x:g} {top:g}")
        x, y = to_x, top
        if number < len(stops) - 1:
            y = to_y + half
            data.append(f"L{x:g} {y:g}")
    return "".join(data)
