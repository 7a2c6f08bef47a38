"""Some hundred inputs that the fuzzer makes hold what it watches for."""

from __future__ import annotations

from tests.fuzz import targets
from tests.fuzz.fuzzer import CORPUS, Fuzzer
from webhook.review.endpoints import BY_PATH

PODS, VMS = BY_PATH["/mutate/scheduling/pods/enforce"], BY_PATH["/validate/instancetypes/virtualmachines/enforce"]


def test_some_hundred_inputs_hold() -> None:
    run = Fuzzer(CORPUS, 3, sorted(targets.TARGETS))
    for _ in range(150):
        assert run.step() is None
