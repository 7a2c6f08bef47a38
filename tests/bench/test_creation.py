"""What the benchmark of creations makes of the API server's metrics and of its own clock."""

from __future__ import annotations

import pytest

from bench.creation.webhook_calls import Calls

_NAME = "apiserver_admission_webhook_admission_duration_seconds"


def _metrics(fast: int, slow: int, updates: int = 0, passed_over: int = 0) -> str:
    """The API server's metrics after so many calls of 2 and of 20 ms for what was created."""
    lines = [f"# TYPE {_NAME} histogram"]
    for operation, below, every in (("CREATE", fast, fast + slow), ("UPDATE", updates, updates)):
        labels = f'name="x",operation="{operation}",rejected="false",type="admit"'
        lines += [
            f'{_NAME}_bucket{{{labels},le="0.005"}} {below}',
            f'{_NAME}_bucket{{{labels},le="0.025"}} {every}',
            f'{_NAME}_bucket{{{labels},le="+Inf"}} {every}',
            f"{_NAME}_sum{{{labels}}} {below * 0.002 + (every - below) * 0.02}",
            f"{_NAME}_count{{{labels}}} {every}",
        ]
    failures = "apiserver_admission_webhook_fail_open_count"
    lines += [f"# TYPE {failures} counter", f'{failures}{{name="x",type="admit"}} {passed_over}']
    return "\n".join(lines) + "\n"


def test_only_calls_for_what_was_created_meanwhile_count() -> None:
    before, after = Calls.of(_metrics(10, 10, updates=5)), Calls.of(_metrics(100, 11, updates=50))

    calls = after.since(before)

    assert calls.total == 91
    assert calls.seconds == pytest.approx(90 * 0.002 + 0.02)
    assert (calls.within(0.5), calls.within(0.98), calls.within(0.99)) == (0.005, 0.005, 0.025)
    assert calls.cells() == ("91", "2.20", "< 5", "< 25")
