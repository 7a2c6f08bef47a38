from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.kubevirt.run_strategy import RunnableVm


def vm(**spec: Any) -> RunnableVm:
    return msgspec.convert({"metadata": {"name": "web"}, "spec": spec}, RunnableVm)


@pytest.mark.parametrize(
    ("spec", "after_failure", "after_shutdown"),
    [
        ({"runStrategy": "Always"}, True, True),
        ({"running": True}, True, True),
        ({"runStrategy": "RerunOnFailure"}, True, False),
        *(({"runStrategy": strategy}, False, False) for strategy in ("Manual", "Once", "Halted", "WaitAsReceiver")),
        ({"running": False}, False, False),
        ({}, False, False),
    ],
)
def test_which_vms_kubevirt_starts_again(spec: dict[str, Any], after_failure: bool, after_shutdown: bool) -> None:
    found = vm(**spec)
    assert (found.restarts_after_failure, found.restarts_after_shutdown) == (after_failure, after_shutdown)


def test_which_vms_have_changes_that_need_a_restart() -> None:
    for status, required in (("True", True), ("False", False)):
        conditions = {
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "RestartRequired", "status": status}]
        }
        assert msgspec.convert({"status": conditions}, RunnableVm).requires_restart == required
    assert not vm().requires_restart


def test_volumes_of_the_template() -> None:
    assert vm(template={"spec": {"volumes": [{"name": "disk"}, {"name": "data"}]}}).volumes == {"disk", "data"}
    assert vm(template={}).volumes == vm().volumes == frozenset()
