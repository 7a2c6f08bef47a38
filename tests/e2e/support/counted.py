"""The program, ``python -m tests.e2e.support.counted``, without two waits that tests would spend doing nothing.

Tests count reviews by a metric before and after what they do, so metrics are rendered for each scrape: the text that
the server keeps for a second would have each of them wait for it (`tests/server/test_ops.py`
tests that it is kept). And a new CA signs sooner than where API servers far away have to learn of it
(`tests/certs/test_rotation.py`): the one of a test is here.
"""

from certs import rotation
from webhook.cli.main import main
from webhook.server import ops as rendering

if __name__ == "__main__":
    rendering.KEPT_SECONDS = 0.0  # type: ignore[misc]
    rotation.SPREAD_SECONDS = 4.0  # type: ignore[misc]
    main(prog_name="kubevirt-webhook")
