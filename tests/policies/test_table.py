from __future__ import annotations

from webhook.policies.table import BY_PATH, ENDPOINTS


def test_paths_are_unique_and_say_what_they_are() -> None:
    assert len(BY_PATH) == len(ENDPOINTS)
    assert set(BY_PATH) == {
        f"/mutate/scheduling/{resource}/{stage}"
        for resource in ("pods", "virtualmachines", "virtualmachineinstances")
        for stage in ("enforce", "observe")
    }


def test_scheduling_never_stands_in_the_way() -> None:
    assert {endpoint.on_error for endpoint in ENDPOINTS if endpoint.job == "scheduling"} == {"allow"}
