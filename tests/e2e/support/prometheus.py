"""A real Prometheus that scrapes nodes which are as busy as a test says, as node-exporter would report them."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from hack.debian import ensure

from .commands import LOOPBACK
from .kube import PATIENCE, eventually
from .loopback import LoopbackServer, reply
from .processes import Process, free_port

_GIB = 2**30
_CPUS = 16


class BusyNodes(LoopbackServer):
    """What node-exporter says on several nodes, of which such shares of CPUs and memory are in use, each at a path."""

    def __init__(self, busy: Mapping[str, float]) -> None:
        self._busy = busy
        kind = {"Content-Type": "text/plain; version=0.0.4"}
        super().__init__(lambda handler: reply(handler, self._text(handler.path.strip("/")).encode(), headers=kind))

    def _text(self, node: str) -> str:
        busy, now = self._busy[node], time.time()
        lines = [
            f"node_memory_MemTotal_bytes {64 * _GIB}",
            f"node_memory_MemAvailable_bytes {64 * _GIB * (1 - busy):.0f}",
        ]
        for cpu in range(_CPUS):
            lines.append(f'node_cpu_seconds_total{{cpu="{cpu}",mode="idle"}} {now * (1 - busy):.3f}')
            lines.append(f'node_cpu_seconds_total{{cpu="{cpu}",mode="user"}} {now * busy:.3f}')
        return "\n".join([*lines, ""])


class NodePrometheus:
    """A Prometheus on loopback that scrapes such nodes, with groups of recording rules; a context manager."""

    def __init__(self, directory: Path, nodes: BusyNodes, names: list[str], groups: list[Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}"
        # Rules of a page have the intervals of a cluster, after whose length there is a rate.
        quick = [{**group, "interval": "1s"} for group in groups]
        self._rules = json.dumps({"groups": quick}).replace("[5m]", "[5s]")
        self._rules_file = directory / "rules.json"
        jobs = [
            {
                "job_name": f"node-exporter-{name}",
                "metrics_path": f"/{name}",
                "static_configs": [{"targets": [nodes.address], "labels": {"instance": name}}],
            }
            for name in names
        ]
        content = {"global": {"scrape_interval": "1s"}, "rule_files": [self._rules_file.name], "scrape_configs": jobs}
        (directory / "prometheus.yml").write_text(json.dumps(content))
        programs = ensure("prometheus", ("prometheus", "promtool"), os.environ)
        command = [str(programs / "prometheus"), f"--config.file={directory / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={LOOPBACK}:{port}"]
        self._process = Process("prometheus", command, directory / "log")

    def __enter__(self) -> Self:
        self._process.start()
        # Rates of fewer scrapes than a window holds are rough, and would stay in averages: rules begin after that.
        self._process.wait_ready(lambda: bool(self.values("count_over_time(up[5s:1s]) >= 5 and up == 1")))
        self._rules_file.write_text(self._rules)
        os.kill(self._process.pid, signal.SIGHUP)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def values(self, query: str) -> dict[str, float]:
        """The value of a query by ``instance``."""
        parameters = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=PATIENCE) as answer:
            result = json.load(answer)["data"]["result"]
        return {one["metric"]["instance"]: float(one["value"][1]) for one in result}

    def wait_for(self, query: str, expected: Mapping[str, float], within: float = 0.05) -> None:
        """Return once a query has these values, each to within so much."""

        def is_there() -> bool:
            found = self.values(query)
            return found.keys() == expected.keys() and all(abs(found[one] - expected[one]) < within for one in found)

        eventually(is_there, what=f"{query} of all nodes")
