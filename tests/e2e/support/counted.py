"""The program, ``python -m tests.e2e.support.counted``, with its metrics rendered anew for each scrape.

Tests count reviews by a metric before and after what they do. The text that the server keeps for a second, so that
scrapes cost little, would have each of them wait for a second (`tests/server/test_ops.py` tests that it is kept).
"""

from webhook.cli.main import main
from webhook.server import ops as rendering

if __name__ == "__main__":
    rendering.KEPT_SECONDS = 0.0  # type: ignore[misc]
    main(prog_name="kubevirt-webhook")
