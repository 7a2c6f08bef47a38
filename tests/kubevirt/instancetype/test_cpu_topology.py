from __future__ import annotations

from typing import Any

import pytest

from webhook.kubevirt.instancetype.preferences import check_divisible, divide
from webhook.kubevirt.rejection import Crash


def preferring(name: str | None, across: str | None = None, ratio: int | None = None, old: int = 0) -> dict[str, Any]:
    options = {key: value for key, value in (("across", across), ("ratio", ratio)) if value is not None}
    cpu = {"preferredCPUTopology": name, "spreadOptions": options} if name is not None else {"spreadOptions": options}
    return {"cpu": cpu, "preferSpreadSocketToCoreRatio": old}


@pytest.mark.parametrize(
    ("guest", "preference", "parts"),
    [
        (4, None, (4, 1, 1)),
        (4, preferring(None), (4, 1, 1)),
        (4, preferring("sockets"), (4, 1, 1)),
        (4, preferring("preferSockets"), (4, 1, 1)),
        (4, preferring("any"), (4, 1, 1)),
        (4, preferring("preferAny"), (4, 1, 1)),
        (4, preferring("cores"), (1, 4, 1)),
        (4, preferring("preferCores"), (1, 4, 1)),
        (4, preferring("threads"), (1, 1, 4)),
        (4, preferring("preferThreads"), (1, 1, 4)),
        (1, preferring("cores"), (1, 1, 1)),
        (0, None, (0, 1, 1)),
        (1, preferring("spread", ratio=0), (1, 1, 1)),
        (3, preferring("spread"), (1, 2, 1)),
        (8, preferring("preferSpread"), (4, 2, 1)),
        (9, preferring("spread", old=3), (3, 3, 1)),
        (8, preferring("spread", ratio=4, old=3), (2, 4, 1)),
        (8, preferring("spread", "CoresThreads"), (1, 4, 2)),
        (9, preferring("spread", "CoresThreads", 3), (1, 3, 3)),
        (36, preferring("spread", "SocketsCoresThreads", 4), (4, 4, 2)),
        (8, preferring("spread", "Everything"), (1, 1, 1)),
        (8, preferring("round"), (1, 1, 1)),
        (8, preferring(""), (1, 1, 1)),
    ],
)
def test_dividing(guest: int, preference: dict[str, Any] | None, parts: tuple[int, int, int]) -> None:
    assert divide(guest, preference) == parts


@pytest.mark.parametrize("across", ["SocketsCores", "CoresThreads", "SocketsCoresThreads"])
def test_kubevirt_would_divide_by_zero(across: str) -> None:
    with pytest.raises(Crash, match="ratio of 0"):
        divide(2, preferring("spread", across, 0))
    with pytest.raises(Crash):
        check_divisible(2, preferring("spread", across, 0))


RATIOS = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of"
THREADS = "not divisible by the number of threads per core"


@pytest.mark.parametrize(
    ("guest", "preference", "text"),
    [
        (3, None, ""),
        (3, preferring("cores"), ""),
        (4, preferring("spread"), ""),
        (
            1,
            preferring("spread"),
            f"1 vCPUs provided by the instance type are not divisible by the {RATIOS} 2 provided by the preference",
        ),
        (
            4,
            preferring("spread", old=3),
            f"4 vCPUs provided by the instance type are not divisible by the {RATIOS} 3 provided by the preference",
        ),
        (3, preferring("spread", "CoresThreads"), f"3 vCPUs provided by the instance type are {THREADS} 2"),
        (4, preferring("spread", "CoresThreads"), ""),
        (
            5,
            preferring("spread", "SocketsCoresThreads"),
            f"5 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 2",
        ),
        (
            6,
            preferring("spread", "SocketsCoresThreads", 4),
            f"6 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 4",
        ),
        (8, preferring("spread", "SocketsCoresThreads", 4), ""),
        (
            3,
            preferring("spread", "SocketsCoresThreads", 0),
            f"3 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 0",
        ),
        (3, preferring("spread", "Everything"), ""),
    ],
)
def test_divisibility(guest: int, preference: dict[str, Any] | None, text: str) -> None:
    cause = check_divisible(guest, preference)

    assert (cause.what if cause else "") == text
    assert cause is None or (cause.reason, cause.field) == ("FieldValueInvalid", "instancetype.spec.cpu.guest")
