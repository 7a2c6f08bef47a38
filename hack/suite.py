"""`make test`: all tests; the first results come while what the end-to-end tests run is still being built.

Where a control plane or Helm has yet to be built, the build runs beside the tests that need neither, at the lowest
priority, so that these have the time that they are allowed. A few tests that fail beside others are run once more,
alone: what fails again has failed, and what passes is named. At the end stands what was skipped, and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET  # pytest wrote it
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hack.controlplane import build
from hack.controlplane.bundles import CONTROL_PLANE, HELM, Bundle

ROOT: Final = Path(__file__).resolve().parents[1]
# More workers than a small machine has cores: tests on a control plane mostly wait.
_PYTEST: Final = ("-m", "pytest", "-n", "4", "--dist", "worksteal")
_ALL: Final = "not kubevirt"
_WITHOUT: Final = f"{_ALL} and not e2e and not page"
_REST: Final = f"{_ALL} and (e2e or page)"
_FAILED: Final = 1
_NO_TESTS: Final = 5
# Real schedulers, browsers and servers have deadlines of their own, which a machine that others load can miss. Where
# more tests fail than these, it was not the load.
_AT_MOST_AGAIN: Final = 5
# Written by pytest's cache.
_LAST_FAILED: Final = ROOT / ".pytest_cache/v/cache/lastfailed"
# Coverage of what mirrors the source and draws no inputs (tests/measuring.py).
_AT_LEAST: Final = (
    ("90", ()),
    ("95", ("--include=webhook/policies/*,webhook/kubevirt/*,webhook/placement/*,webhook/admission/*,certs/*",)),
)


class Building(threading.Thread):
    """Builds what is missing, one after the other, beside the tests.

    Attributes:
        log: what the builds say.
    """

    def __init__(self, bundles: Sequence[Bundle], log: Path) -> None:
        super().__init__(daemon=True)
        self._bundles = bundles
        self.log = log

    def run(self) -> None:
        """Build. A failure is in the log, and the tests that need it say it again."""
        for bundle in self._bundles:
            which = [] if bundle is CONTROL_PLANE else [f"--{bundle.name}"]
            command = ["nice", "-n", "19", sys.executable, "-m", "hack.controlplane.build", *which]
            with self.log.open("ab") as log:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, check=False)


def missing(environ: dict[str, str]) -> list[Bundle]:
    """What can be built here, and is not there yet."""
    if build.compiler(environ) is None:
        return []
    return [bundle for bundle in (CONTROL_PLANE, HELM) if not build.location(environ, bundle=bundle).is_dir()]


def skipped(reports: Iterable[Path]) -> Counter[str]:
    """How many tests were skipped, by the reason."""
    return Counter(
        (found.get("message") or "").strip()
        for report in reports
        if report.exists()
        for found in ET.parse(report).iter("skipped")  # noqa: S314
        if found.get("type") == "pytest.skip"
    )


def alone(last_failed: Path) -> list[str]:
    """The failed tests that may run once more, alone: none where too many failed.

    Args:
        last_failed: pytest's own list of the tests that failed.
    """
    try:
        failed = sorted(json.loads(last_failed.read_text()))
    except FileNotFoundError:
        return []
    return failed if len(failed) <= _AT_MOST_AGAIN else []


def main(arguments: Sequence[str]) -> int:
    """Run the tests.

    Args:
        arguments: for pytest, beside this module's own.

    Returns:
        1 where anything failed.
    """
    begin, environ = time.monotonic(), dict(os.environ)
    for file in ROOT.glob(".coverage*"):
        if file.is_file():
            file.unlink()
    with tempfile.TemporaryDirectory(prefix="kubevirt-webhook-tests-") as name:
        directory = Path(name)
        absent = missing(environ)
        building = Building(absent, directory / "build.log")
        if absent:
            what = " and ".join(f"{bundle.title} ({bundle.takes})" for bundle in absent)
            _say(f"building once, beside the tests that need no control plane: {what}, each on two idle cores;")
            _say(f"beside other work it takes longer; its output: {building.log}")
            building.start()
        done = [_run([sys.executable, "-m", "webhook", "test", "examples/"])]
        reports = [directory / f"{part}.xml" for part in ("first", "rest")]
        done.append(_tests(_WITHOUT if absent else _ALL, reports[0], arguments))
        if absent:
            if building.is_alive():
                _say(f"the tests that need no control plane are through; waiting for the build ({building.log})")
            building.join()
            sys.stderr.write(building.log.read_text(errors="replace"))
            done.append(_tests(_REST, reports[1], arguments))
        done += [_run([sys.executable, "-m", "coverage", "combine", "--quiet"])]
        done += [
            _run([sys.executable, "-m", "coverage", "report", f"--fail-under={least}", *of]) for least, of in _AT_LEAST
        ]
        _summarize(skipped(reports), time.monotonic() - begin)
    return int(any(done))


def _tests(marks: str, report: Path, arguments: Sequence[str]) -> int:
    _LAST_FAILED.unlink(missing_ok=True)
    status = _run([sys.executable, "-m", "coverage", "run", *_PYTEST, "-m", marks, f"--junitxml={report}", *arguments])
    again = alone(_LAST_FAILED) if status == _FAILED else []
    if again:
        _say(f"run once more, alone, what failed beside other tests: {' '.join(again)}")
        status = _run([sys.executable, "-m", "coverage", "run", "-m", "pytest", *again])
        if status == 0:
            _say(f"passed alone, and has to stand other tests beside it, too: {' '.join(again)}")
    return 0 if status == _NO_TESTS else status


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _summarize(reasons: Counter[str], seconds: float) -> None:
    for reason, count in reasons.most_common():
        _say(f"skipped {count}: {reason}")
    _say(f"{reasons.total()} tests skipped; all took {seconds / 60:.0f} minutes")


def _say(what: str) -> None:
    print(f"test: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
