"""The program, ``python -m tests.robustness.replica``, as `tests.e2e.support.counted`, and with a fix taken back.

``ROBUSTNESS_MUTATION`` names one of `mutations.MUTATIONS`. ``ROBUSTNESS_CURRENT_SECONDS`` replaces the age up to which
a store decides, so that a short run meets an old one too.
"""

import os

from tests.robustness.mutations import MUTATIONS


def main() -> None:
    # Before what it replaces is imported by others.
    if name := os.environ.get("ROBUSTNESS_MUTATION"):
        MUTATIONS[name].apply()

    from certs import rotation
    from webhook.cli.main import main as program
    from webhook.cluster import live
    from webhook.k8s.client import reflector
    from webhook.server import ops as rendering

    if seconds := os.environ.get("ROBUSTNESS_CURRENT_SECONDS"):
        for module in (live, reflector):
            if hasattr(module, "CURRENT_SECONDS"):
                vars(module)["CURRENT_SECONDS"] = float(seconds)
    rendering.KEPT_SECONDS = 0.0  # type: ignore[misc]
    rotation.SPREAD_SECONDS = 4.0  # type: ignore[misc]
    program(prog_name="kubevirt-webhook")


if __name__ == "__main__":
    main()
