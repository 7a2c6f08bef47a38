"""The API server's metrics as Kubernetes 1.36 writes them, and what is read out of them."""

from __future__ import annotations

import pytest

from webhook.cli.bench.webhook_metrics import difference, parse, quantile

EDGES = ("0.005", "0.025", "0.1", "0.5", "1", "2.5", "10", "25", "+Inf")


def duration(name: str, type_: str, counts: list[int], total: float, operation: str = "CREATE") -> str:
    """The histogram of one webhook; counts are of all calls below the first edges, the others have the last one."""
    labels = f'name="{name}",operation="{operation}",rejected="false",type="{type_}"'
    metric = "apiserver_admission_webhook_admission_duration_seconds"
    padded = [*counts, *[counts[-1]] * (len(EDGES) - len(counts))]
    buckets = [f'{metric}_bucket{{{labels},le="{edge}"}} {count}' for edge, count in zip(EDGES, padded, strict=True)]
    return "\n".join([*buckets, f"{metric}_sum{{{labels}}} {total}", f"{metric}_count{{{labels}}} {padded[-1]}"])


def metrics(*parts: str, started: float = 100.0) -> bytes:
    text = [
        "# HELP process_start_time_seconds [STABLE] Start time of the process since unix epoch in seconds.",
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {started}",
        "# HELP apiserver_admission_webhook_admission_duration_seconds [STABLE] Admission webhook latency",
        "# TYPE apiserver_admission_webhook_admission_duration_seconds histogram",
        *parts,
        'apiserver_request_total{code="200"} 7',
    ]
    return "\n".join(text).encode() + b"\n"


def counter(metric: str, value: int, /, **labels: str) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"# TYPE {metric} counter\n{metric}{{{inside}}} {value}"


def opened(webhook: str, value: int, type_: str = "admit") -> str:
    return counter("apiserver_admission_webhook_fail_open_count", value, name=webhook, type=type_)


def test_only_what_happened_between_counts() -> None:
    before = parse(metrics(duration("a.example", "admit", [10, 20], 0.2), opened("a.example", 1)))
    after = parse(metrics(duration("a.example", "admit", [10, 40], 0.5), opened("a.example", 3)))

    (found,) = difference(before, after)

    assert (found.name, found.type, found.calls, found.rejected, found.failed_open) == (
        *("a.example", "mutating", 20, 0),
        2,
    )
    assert found.mean_ms == pytest.approx(15.0)
    # All twenty took between 5 and 25 ms.
    assert found.p50_ms == pytest.approx(15.0)
    assert found.p99_ms == pytest.approx(24.8)


def test_a_webhook_that_was_not_called_is_left_out_and_the_most_expensive_comes_first() -> None:
    quiet = duration("quiet.example", "validating", [5], 0.01)
    before = parse(metrics(quiet))
    after = parse(
        metrics(
            quiet,
            duration("cheap.example", "admit", [10], 0.02),
            duration("dear.example", "validating", [0, 0, 10], 0.9),
            duration("other.example", "admit", [50], 0.1, operation="UPDATE"),
        )
    )

    assert [(each.name, each.type) for each in difference(before, after)] == [
        ("dear.example", "validating"),
        ("cheap.example", "mutating"),
    ]


def test_denials_and_a_webhook_that_never_answered() -> None:
    requests = "apiserver_admission_webhook_request_total"
    labels = {"name": "a.example", "operation": "CREATE", "type": "validating"}
    after = parse(
        metrics(
            duration("a.example", "validating", [4], 0.01),
            counter(requests, 3, code="403", rejected="true", **labels),
            counter(requests, 1, code="200", rejected="false", **labels),
            opened("gone.example", 2, "validating"),
        )
    )

    found = {each.name: each for each in difference(parse(metrics()), after)}

    assert (found["a.example"].calls, found["a.example"].rejected) == (4, 3)
    gone = found["gone.example"]
    assert (gone.calls, gone.failed_open, gone.p50_ms, gone.mean_ms) == (0, 2, None, None)


def test_beyond_the_last_edge_nothing_is_known() -> None:
    assert quantile({0.005: 0, 25.0: 1, float("inf"): 100}, 0.99) == 25.0
    assert quantile({0.005: 100, float("inf"): 100}, 0.5) == pytest.approx(0.0025)


def test_what_is_no_metrics_is_an_error() -> None:
    with pytest.raises((ValueError, KeyError)):
        parse(b"process_start_time_seconds{ nonsense\n")
