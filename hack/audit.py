"""Looks the locked dependencies up in a database of known vulnerabilities: `make audit`.

Exits 1 if one of them has any. Without pip-audit, or where it reaches no database, there is one line that says so, and
0: a machine without a network can't know, and says that it doesn't.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
# For each lock file, and for one answer of the database.
SECONDS, ANSWER_SECONDS = 120, 10
# As it is installed, or by a tool that runs it out of an environment of its own.
COMMANDS: Sequence[Sequence[str]] = (("pip-audit",), ("uvx", "pip-audit"), ("pipx", "run", "pip-audit"))


class AuditError(Exception):
    """Nothing can be said."""


def main() -> int:
    """Audit all lock files; returns the exit status."""
    try:
        packages = [package for lock in LOCKS for package in known(report(ROOT / lock))]
    except AuditError as why:
        print(f"audit: skipped: {why}")
        return 0
    found = sorted(set(vulnerabilities(packages)))
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    if not found:
        passed_over = sorted({package["name"] for package in packages if "vulns" not in package})
        but = f"; the database does not know {', '.join(passed_over)}" if passed_over else ""
        print(f"audit: no known vulnerabilities in {' and '.join(LOCKS)}{but}")
    return int(bool(found))


def report(lock: Path) -> Any:
    """What pip-audit says of a lock file.

    Raises:
        AuditError: it is not there, or has not come to an end.
    """
    command = next((each for each in COMMANDS if shutil.which(each[0])), None)
    if command is None:
        raise AuditError("pip-audit is not installed; install it with `pipx install pip-audit`")
    options = ("--disable-pip", "--format=json", "--progress-spinner=off", f"--timeout={ANSWER_SECONDS}")
    try:
        done = subprocess.run(
            [*command, *options, f"--requirement={lock}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise AuditError(f"pip-audit found no end within {SECONDS} s") from None
    except ValueError:
        said = (done.stderr.strip().splitlines() or [f"it exited {done.returncode}"])[-1]
        raise AuditError(f"pip-audit reached no database ({said[:200]})") from None


def known(found: Any) -> list[Any]:
    """The packages in a report.

    Raises:
        AuditError: not one of them is known to the database, so it isn't one.
    """
    packages: list[Any] = found["dependencies"]
    if not any("vulns" in package for package in packages):
        raise AuditError(f"the database that pip-audit reached knows none of the {len(packages)} packages")
    return packages


def vulnerabilities(packages: Iterable[Any]) -> Iterator[str]:
    """The vulnerabilities of packages, a line each."""
    for package in packages:
        for one in package.get("vulns", ()):
            fixed = ", ".join(one.get("fix_versions") or ()) or "no version yet"
            yield f"{package['name']} {package['version']} has {one['id']}, fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())
