from __future__ import annotations

import asyncio
import cProfile
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.examples import EXAMPLES
from tests.cli.review.samples import result
from webhook.cli.requests import Sending
from webhook.cli.review import batch
from webhook.cli.review.batch import BatchJob, Written, default_jobs, evaluate_in_processes
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.formats import Text
from webhook.cli.review.inputs import Part
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.settings.file import load

VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: web{}, namespace: shop}}
spec:
  runStrategy: Always
  template: {{spec: {{domain: {{devices: {{}}}}}}}}
"""


@pytest.fixture
def job() -> BatchJob:
    settings = load(EXAMPLES / "settings.yaml")
    cluster = FilesCluster.load(EXAMPLES / "cluster", settings)
    return BatchJob(Evaluator(cluster, settings, Sending(), objects=False), Text(), show_secrets=False)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Forty files in some ten groups, one of them with mistakes."""
    monkeypatch.setattr("webhook.cli.review.inputs.PART_BYTES", 4096)
    found = []
    for number in range(40):
        file = tmp_path / f"{number:02}.yaml"
        file.write_text(VM.format(number) if number != 7 else "a: 1\na: 2\nb: 1\nb: 2\n")
        found.append(Part(str(file), file.stat().st_size, named=True))
    return found


def joined(results: Any) -> tuple[list[str], list[str], int]:
    all_: list[Written] = list(results)
    fragments = [fragment for each in all_ for fragment in each.fragments]
    return fragments, [str(error) for each in all_ for error in each.mistakes], len(all_)


def test_processes_say_what_one_process_says_in_the_same_order(parts: list[Part], job: BatchJob) -> None:
    alone, together = (joined(evaluate_in_processes(parts, job, jobs)) for jobs in (1, 3))

    assert alone == together
    fragments, mistakes, groups = alone
    assert groups > 5
    assert [line.split()[3] for line in fragments] == [f"shop/web{number}" for number in range(40) if number != 7]
    assert len(mistakes) == 2


def test_a_killed_process_is_one_sentence(parts: list[Part], job: BatchJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_picklable", lambda _: os.kill(os.getpid(), signal.SIGKILL))

    with pytest.raises(InputError) as caught:
        list(evaluate_in_processes(parts, job, 2))
    assert caught.value.where == "--jobs"


async def test_over_a_cluster_reviews_do_not_wait_for_each_other(parts: list[Part], job: BatchJob) -> None:
    running = most = 0

    class SlowEvaluator:
        waits = True

        async def evaluate(self, document: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return result(name=document.value["metadata"]["name"])

    text = "---".join(VM.format(number) for number in range(40)).encode()
    slow = BatchJob(SlowEvaluator(), Text(), show_secrets=False)  # type: ignore[arg-type]
    written = await batch.evaluate([Part("f", len(text), named=True, text=text)], slow)

    assert most == 16
    assert [line.split()[3] for line in written.fragments] == [f"shop/web{number}" for number in range(40)]


def test_one_process_for_each_cpu() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)


def test_another_vm_costs_a_bounded_number_of_calls(job: BatchJob) -> None:
    """Ten thousand of them are a matter of seconds: parsing, evaluation and text together."""

    def calls(number: int) -> int:
        text = "---".join(VM.format(each) for each in range(number)).encode()
        profile = cProfile.Profile()
        profile.enable()
        written = asyncio.run(batch.evaluate([Part("f", len(text), named=True, text=text)], job))
        profile.disable()
        assert len(written.fragments) == number
        return sum(entry.callcount for entry in profile.getstats())

    calls(1)
    assert (calls(60) - calls(20)) / 40 < 1100
