"""Where the microseconds of a review go: ``python -m bench.reviews.profile``.

Puts load on the server with a sampler in it, TLS and all, prints the shares of each part, and draws
docs/images/review-time.svg.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from bench.reviews import certificate, golang, host, interpreter
from bench.reviews.errors import BenchError
from bench.reviews.load import LoadClient, Pressure
from bench.reviews.payloads import MIGRATION, PAYLOADS, POD, VM
from bench.reviews.rounds import BUSY
from bench.reviews.servers import OURS, ROOT, Pythons, lineup, started

PICTURE: Final = "docs/images/review-time.svg"
_TITLES: Final = {POD.name: "launcher pod", VM.name: "VM", MIGRATION.name: "migration with a selector"}
_PRESSURE: Final = Pressure(seconds=6.0, warmup=0.5)
_COLORS: Final = ("#8da0b3", "#d08f4c", "#5b8ff9", "#61b58a", "#b07cc6", "#c9b458", "#d96c6c")
_WIDTH, _BAR, _LEFT, _LINE = 860, 22, 250, 28

# Microseconds of CPU by the part of a review.
Parts = Mapping[str, float]


def main() -> int:
    """Measure, print and draw; the exit code is 1 where a server failed, 2 where the machine lacks something."""
    try:
        measured = {payload.name: _measured(payload.name) for payload in (POD, VM, MIGRATION)}
    except BenchError as error:
        print(f"bench.reviews.profile: {error}", file=sys.stderr)
        return error.exit_code
    for name, parts in measured.items():
        print(f"{_TITLES[name]}: {sum(parts.values()):.0f} µs with the sampler")
        for part, microseconds in parts.items():
            print(f"  {microseconds:6.1f} µs  {microseconds / sum(parts.values()):4.0%}  {part}")
    (ROOT / PICTURE).write_text(drawn({_TITLES[name]: parts for name, parts in measured.items()}))
    return 0


def _measured(name: str) -> Parts:
    payload = next(each for each in PAYLOADS if each.name == name)
    cores, cache = host.cores(), host.cache_directory()
    built = golang.build(cache, ["load"])
    python = interpreter.environment(interpreter.choose(None)[0], ROOT / "requirements.lock", cache)
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as place:
        directory = Path(place)
        pair, samples = certificate.make(directory), directory / "samples.json"
        os.environ["BENCH_SAMPLES"] = str(samples)
        servers = lineup([OURS], Pythons(python), built.binaries, pair, directory, module="bench.reviews.sampled")
        client = LoadClient(built.binaries / "load", pair, cores.load, _PRESSURE)
        with started(servers, cores.server, pair, directory) as (running,):
            time.sleep(0.5)
            os.kill(running.pid, signal.SIGUSR2)
            sample = client.press(running, payload, BUSY, 1)
        seen: dict[str, int] = json.loads(samples.read_text())
    total = sum(seen.values()) or 1
    return {part: sample.cpu_us * count / total for part, count in sorted(seen.items(), key=lambda each: -each[1])}


def drawn(measured: Mapping[str, Parts]) -> str:
    """Horizontal bars, one group for each review, as an SVG that is readable on light and on dark pages."""
    parts = list(dict.fromkeys(part for each in measured.values() for part in each))
    colors = {part: _COLORS[index % len(_COLORS)] for index, part in enumerate(parts)}
    longest = max(max(each.values()) for each in measured.values())
    lines: list[str] = []
    y = 0
    for title, each in measured.items():
        y += _LINE
        lines.append(_text(10, y - 8, f"{title}: {sum(each.values()):.0f} µs of CPU", bold=True))
        for part, microseconds in each.items():
            width = (_WIDTH - _LEFT - 130) * microseconds / longest
            lines += [
                _text(_LEFT - 10, y + 15, part, anchor="end"),
                f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 4}" fill="{colors[part]}"/>',
                _text(_LEFT + width + 8, y + 15, f"{microseconds:.0f} µs, {microseconds / sum(each.values()):.0%}"),
            ]
            y += _BAR
        y += 12
    return _svg(lines, y)


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _svg(lines: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
    style = "<style>text { fill: #333 } @media (prefers-color-scheme: dark) { text { fill: #ddd } }</style>"
    return "\n".join((f'{head} font-size="14">', style, *lines, "</svg>")) + "\n"


if __name__ == "__main__":
    sys.exit(main())
