"""The program, ``python -m tests.e2e.support.counted``, without waits that tests would spend doing nothing.

Tests count reviews by a metric before and after what they do, so metrics are rendered for each scrape: the text that
the server keeps for a second would have each of them wait for it (`tests/server/test_ops.py` tests that it is kept).
The denial of a token is forgotten soon, for tests give its account a role then; and a new CA signs sooner than where
API servers far away have to learn of it (`tests/certs/test_rotation.py`).
"""

from certs import rotation
from webhook.cli.main import main
from webhook.server import authorizer
from webhook.server import ops as rendering

if __name__ == "__main__":
    rendering.KEPT_SECONDS = 0.0  # type: ignore[misc]
    authorizer.KEPT_SECONDS = 0.5  # type: ignore[misc]
    rotation.SPREAD_SECONDS = 4.0  # type: ignore[misc]
    main(prog_name="kubevirt-webhook")
