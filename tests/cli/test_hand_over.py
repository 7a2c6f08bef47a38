from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from tests.cli.runner import run
from tests.install.manifests import planned
from tests.install.memory import InstallMemory
from webhook.cli import confirmation
from webhook.install import plan
from webhook.k8s.client import transport

DEPLOYMENT = planned().deployment


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> InstallMemory:
    memory = InstallMemory()

    async def connect(kubeconfig: str | None = None) -> InstallMemory:
        return memory

    monkeypatch.setattr(transport, "connect", connect)
    return memory


def own(api: InstallMemory, manager: str) -> None:
    entry = {"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {}}}
    api.put(plan.path(DEPLOYMENT), {**DEPLOYMENT, "metadata": {**DEPLOYMENT["metadata"], "managedFields": [entry]}})


def owners(api: InstallMemory) -> list[str]:
    return [one["manager"] for one in api.objects[plan.path(DEPLOYMENT)]["metadata"]["managedFields"]]


def test_it_is_shown_and_then_done(api: InstallMemory, golden: Callable[[str], None]) -> None:
    own(api, "kubevirt-webhook-install")

    shown = run("hand-over", "--to-manager=kubectl", "--dry-run").output
    assert owners(api) == ["kubevirt-webhook-install"]
    done = run("hand-over", "--to-manager=kubectl").output

    assert owners(api) == ["kubectl"]
    assert done == f"{shown}handed over 1 object\n"
    golden(run("hand-over", "--to-manager=kubectl").output)


def test_a_tool_cannot_hand_over_to_itself(api: InstallMemory) -> None:
    done = run("hand-over", "--from-manager=kubectl", "--to-manager=kubectl")

    assert done.exit_code == 2
    assert api.closed is False


def test_every_run_and_the_question_name_the_cluster(api: InstallMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    api.cluster = 'context "prod\nyes", https://prod'
    own(api, "kubevirt-webhook-install")
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(confirmation, "is_on_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", refuse)

    shown = run("hand-over", "--to-manager=kubectl", "--dry-run").output
    done = run("hand-over", "--to-manager=kubectl").output

    assert shown == done
    assert shown.startswith("cluster: context ")
    assert shown.count("\n") == 2
    assert owners(api) == ["kubevirt-webhook-install"]
    assert ["https://prod" in question for question in asked] == [True]
