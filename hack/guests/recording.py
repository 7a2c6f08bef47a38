"""Records a drain of guests for docs/drain.md: `make guests-recording` runs it beside the cluster of `make guests`.

asciinema records what a terminal shows; svg-term makes an animation of the recording, which a browser plays by itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.e2e.support.pki import ADMIN
from tests.guests.support import NAMESPACE, OTHER, Guests

ROOT: Final = Path(__file__).resolve().parents[2]
CAST: Final = ROOT / "build/drain.cast"
PICTURE: Final = ROOT / "docs/images/drain.svg"
SVG_TERM: Final = "svg-term-cli@2.1.1"
NODE: Final = "node-1"
VMS: Final = ("cart", "queue", "search", "web")
WIDTH: Final = 112
# Each command is shown, then run; what takes minutes is watched only as long as it moves.
SESSION: Final = f"""
kubevirt-webhook() {{ "$PYTHON" -m webhook "$@"; }}
show() {{ printf '\\e[1;32m$\\e[0m \\e[1m%s\\e[0m\\n' "$*"; sleep 1; eval "$@"; sleep 3; echo; }}
show kubectl get vmi -n {NAMESPACE}
show kubectl logs -n {NAMESPACE} -l vm.kubevirt.io/name=web -c guest-console-log --tail=2
show kubevirt-webhook explain drain {NODE} '| head -14'
show kubectl drain {NODE} --ignore-daemonsets --delete-emptydir-data \
  --pod-selector=kubevirt.io=virt-launcher '2>/dev/null | grep drained' '&'
show timeout $DRAIN_SECONDS kubectl get vmim -n {NAMESPACE} --watch-only -o \
  custom-columns=VM:.spec.vmiName,PHASE:.status.phase,FROM:.status.migrationState.sourceNode,TO:.status.migrationState.targetNode
wait
show kubectl get vmi -n {NAMESPACE}
show kubectl logs -n {NAMESPACE} -l vm.kubevirt.io/name=web -c guest-console-log --tail=2
sleep 5
"""


def missing() -> str:
    """What is not there to record and draw with; empty: all of it is."""
    packages = {"asciinema": "asciinema", "npx": "npm"}
    lacking = (name for name in packages if not shutil.which(name))
    return next((f"{name} is missing; on Debian it is in the package {packages[name]}" for name in lacking), "")


def record() -> None:
    """Write the recording of a drain, beside the cluster."""
    guests = Guests(Path(os.environ["NODE_DIRECTORY"]), Path(os.environ["NODE_BINARIES"]))
    guests.install_all()
    guests.offer()
    guests.kubectl("cordon", OTHER[NODE])
    guests.start(*VMS)
    guests.kubectl("uncordon", OTHER[NODE])
    seconds = guests.explain("drain", NODE)["seconds"]
    CAST.parent.mkdir(exist_ok=True)
    command = ["asciinema", "rec", "--quiet", "--overwrite", f"--cols={WIDTH}", "--rows=30", "--idle-time-limit=2"]
    environ = {
        **os.environ,
        "KUBECONFIG": str(guests.kubeconfig_for(*ADMIN)),
        "PATH": f"{os.environ['NODE_BINARIES']}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "DRAIN_SECONDS": str(int(seconds) + 30),
        "COLUMNS": str(WIDTH),
    }
    script = CAST.with_suffix(".sh")
    script.write_text(SESSION)
    subprocess.run([*command, f"--command=bash {script}", str(CAST)], env=environ, cwd=ROOT, check=True)


def draw() -> None:
    """Make the picture of the recording; outside the namespaces, which have no way to a registry."""
    options = ("--in", str(CAST), "--out", str(PICTURE), "--window", "--no-cursor")
    subprocess.run(["npx", "--yes", SVG_TERM, *options], check=True)


if __name__ == "__main__":
    if why := missing():
        sys.exit(f"guests-recording: {why}")
    if "NODE_DIRECTORY" in os.environ:
        record()
    elif "--draw" in sys.argv:
        draw()
