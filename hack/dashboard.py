"""Draws the dashboard without Grafana: ``python -m hack.dashboard`` asks a real Prometheus each query of each panel.

The Prometheus scrapes a server over the example cluster, which is sent the example reviews meanwhile. Panels for which
such a server has nothing to measure stay empty, and say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import ssl
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack import svg
from hack.debian import MissingError, ensure
from tests.e2e.support.processes import Process, free_port
from webhook.cluster.files import FilesCluster
from webhook.forecast import requests
from webhook.k8s.yaml_documents import read_documents
from webhook.settings_file import load

ROOT: Final = Path(__file__).resolve().parents[1]
DASHBOARD: Final = ROOT / "manifests" / "components" / "dashboard" / "kubevirt-webhook.json"
PICTURE: Final = ROOT / "docs" / "images" / "dashboard.svg"
NAMESPACE: Final = "kubevirt-webhook"
MEASURED_SECONDS: Final = 60
COLUMN, ROW, MARGIN, HEAD = 48, 24, 16, 26
COLORS: Final = ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e")
# Of a query: a name for each series, and its points.
Series = dict[str, list[tuple[float, float]]]


def draw(panels: Sequence[Mapping[str, Any]], answers: Mapping[str, Series]) -> str:
    """The picture.

    Args:
        panels: as the dashboard has them.
        answers: the series of each panel, by its title.
    """
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW + 2 * MARGIN
    parts = [part for panel in panels for part in _panel(panel, answers.get(panel["title"], {}))]
    return svg.document(24 * COLUMN + 2 * MARGIN, height, "The dashboard of kubevirt-webhook", parts)


def _panel(panel: Mapping[str, Any], series: Series) -> Iterator[str]:
    place = panel["gridPos"]
    x, y = MARGIN + place["x"] * COLUMN, MARGIN + place["y"] * ROW
    width, height = place["w"] * COLUMN - 8, place["h"] * ROW - 8
    yield svg.rectangle(x, y, width, height)
    yield svg.text(x + 10, y + 18, panel["title"], size=13)
    if not series:
        yield svg.text(x + width / 2, y + height / 2, "no data", anchor="middle", css="quiet")
    elif panel["type"] == "stat":
        yield from _numbers(series, x, y + HEAD, height - HEAD)
    else:
        yield from _lines(series, x + 10, y + HEAD, width - 20, height - HEAD)


def _numbers(series: Series, x: float, y: float, height: float) -> Iterator[str]:
    for number, (name, points) in enumerate(sorted(series.items())):
        at = y + height * (number + 0.6) / len(series)
        yield svg.text(x + 14, at, f"{points[-1][1]:.4g}  {name}", size=16)


def _lines(series: Series, x: float, y: float, width: float, height: float) -> Iterator[str]:
    shown = sorted(series.items(), key=lambda one: -max(value for _, value in one[1]))[: len(COLORS)]
    legend = 14 * len(shown) + 6
    times = [at for _, points in shown for at, _ in points]
    most = max(value for _, points in shown for _, value in points)
    top = most or 1.0
    first, span = min(times), (max(times) - min(times)) or 1.0
    chart = height - legend - 8
    yield svg.text(x + width, y + 8, f"{most:.3g}", size=10, anchor="end", css="quiet")
    for number, ((name, points), color) in enumerate(zip(shown, COLORS, strict=False)):
        corners = " ".join(
            f"{x + (at - first) / span * width:.1f},{y + chart * (1 - value / top):.1f}" for at, value in points
        )
        yield f'<polyline points="{corners}" style="fill:none;stroke:{color};stroke-width:1.6"/>'
        below = y + chart + 16 + 14 * number
        yield f'<rect x="{x:g}" y="{below - 8:g}" width="9" height="9" style="fill:{color}"/>'
        yield svg.text(x + 14, below, name or "all", size=10, css="quiet")


def series_of(answer: Mapping[str, Any], legend: str) -> Series:
    """What Prometheus answers to a range query, by names as the panel writes them."""
    found: Series = {}
    for one in answer["result"]:
        points = [(float(at), float(value)) for at, value in one["values"]]
        # A quantile of nothing is not a number.
        if finite := [(at, value) for at, value in points if math.isfinite(value)]:
            found[_name(one["metric"], legend)] = finite
    return found


def _name(labels: Mapping[str, str], legend: str) -> str:
    written = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), legend)
    return written or " ".join(labels.values())


def _ask(api: str, path: str, **parameters: str) -> Any:
    with urllib.request.urlopen(f"{api}/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]


def _answers(api: str, panels: Sequence[Mapping[str, Any]], since: float) -> dict[str, Series]:
    window = {"start": f"{since}", "end": f"{time.time()}", "step": "1"}
    found: dict[str, Series] = {}
    for panel in panels:
        for target in panel["targets"]:
            query = target["expr"].replace("$namespace", NAMESPACE)
            answer = _ask(api, "query_range", query=query, **window)
            found.setdefault(panel["title"], {}).update(series_of(answer, target.get("legendFormat", "")))
    return found


async def _prepare() -> list[tuple[str, bytes]]:
    """The example reviews as bodies, each with the path that the API server sends it to."""
    examples = ROOT / "examples"
    settings = load(examples / "settings.yaml")
    cluster = FilesCluster.load(examples / "cluster", settings)
    prepared = []
    for file in sorted((examples / "reviews").glob("*.yaml")):
        (document,) = read_documents(file)
        asked = await requests.to_review_request(document, cluster, 0.0)
        endpoints = await requests.endpoints(asked.request, cluster, settings, 0.0)
        prepared += [(endpoint.path, asked.body) for endpoint in endpoints]
    return prepared


def _send(port: int, prepared: Sequence[tuple[str, bytes]], seconds: float) -> None:
    """Send reviews, one after the other, again and again."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + seconds
    for path, body in itertools.cycle(prepared):
        if time.monotonic() > end:
            return
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=trusting, timeout=5):
            time.sleep(0.02)


def measure(prometheus: Path, panels: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Series]:
    """What Prometheus answers to the queries of panels after a server was scraped for a while."""
    webhooks, ops, port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)

        def run(program: str, command: Sequence[str], url: str) -> None:
            process = Process(program, command, directory / f"{program}.log")
            stack.callback(process.stop)
            process.start()
            process.wait_ready(lambda: urllib.request.urlopen(url, timeout=5).status == 200)

        labels = {"namespace": NAMESPACE, "pod": "example", "service": NAMESPACE}
        target = {"targets": [f"127.0.0.1:{ops}"], "labels": labels}
        rules = yaml.safe_load((ROOT / "manifests" / "components" / "monitoring" / "alerts.yaml").read_text())
        (directory / "rules.json").write_text(json.dumps({"groups": rules["spec"]["groups"]}))
        content = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.json"],
            "scrape_configs": [{"job_name": NAMESPACE, "static_configs": [target]}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(content))
        examples = ROOT / "examples"
        serve = [sys.executable, "-m", "webhook", "serve", "--cluster-from", str(examples / "cluster")]
        serve += ["--config", str(examples / "settings.yaml"), f"--listen=127.0.0.1:{webhooks}"]
        run("serve", [*serve, f"--ops-listen=127.0.0.1:{ops}"], f"http://127.0.0.1:{ops}/readyz")
        scrape = [str(prometheus), f"--config.file={directory / 'prometheus.yml'}"]
        scrape += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        run("prometheus", scrape, f"http://127.0.0.1:{port}/-/ready")
        since = time.time()
        _send(webhooks, asyncio.run(_prepare()), seconds)
        return _answers(f"http://127.0.0.1:{port}/api/v1", panels, since)


def main() -> int:
    """Write the picture; returns the exit status."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    try:
        program = ensure("prometheus", ("prometheus", "promtool"), os.environ) / "prometheus"
    except MissingError as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 1
    PICTURE.write_text(draw(panels, measure(program, panels, MEASURED_SECONDS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
