"""The program, ``python -m tests.robustness.replica CLOCK``, as `tests.e2e.support.counted`, and with a fix taken back.

``CLOCK`` is the file by which its wall clock is set (`clocks`); audit lines have the right time all the same, for the
recorder finds by it which request they are about.
``ROBUSTNESS_MUTATION`` names one of `mutations.MUTATIONS`. ``ROBUSTNESS_CURRENT_SECONDS`` replaces the age up to which
a store decides, so that a short run meets an old one too.
"""

import os
import sys
from pathlib import Path

from tests.robustness.clocks import shift
from tests.robustness.mutations import MUTATIONS


def main() -> None:
    # Before what they replace is imported by others.
    right = shift(Path(sys.argv.pop(1)))
    if name := os.environ.get("ROBUSTNESS_MUTATION"):
        MUTATIONS[name].apply()

    from certs import rotation
    from webhook.admission import audit
    from webhook.cli.main import main as program
    from webhook.cluster import live
    from webhook.k8s.client import reflector
    from webhook.review import reviewer
    from webhook.server import ops as rendering

    if seconds := os.environ.get("ROBUSTNESS_CURRENT_SECONDS"):
        for module in (live, reflector):
            if hasattr(module, "CURRENT_SECONDS"):
                vars(module)["CURRENT_SECONDS"] = float(seconds)
    vars(reviewer)["timestamp"] = lambda _: audit.timestamp(right())
    rendering.KEPT_SECONDS = 0.0  # type: ignore[misc]
    rotation.SPREAD_SECONDS = 4.0  # type: ignore[misc]
    program(prog_name="kubevirt-webhook")


if __name__ == "__main__":
    main()
