"""The evaluation of many files: in several processes over files, with several requests in flight over a cluster."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

import msgspec

from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.formats import OutputFormat
from webhook.cli.review.inputs import Part, batches, read
from webhook.cli.review.result import Result
from webhook.cli.review.summary import Summary
from webhook.errors import InputError
from webhook.k8s.yaml_builder import Document
from webhook.k8s.yaml_documents import mistakes_of

# Reviews in flight over a cluster: most wait for the same few objects.
_IN_FLIGHT: Final = 16
_GC_THRESHOLD: Final = (50_000, 20, 20)


class BatchJob(msgspec.Struct, frozen=True):
    """What is done with every object.

    Attributes:
        evaluator: evaluates it.
        format: writes its result.
        show_secrets: whether secrets are written.
    """

    evaluator: Evaluator
    format: OutputFormat
    show_secrets: bool


class Written(msgspec.Struct):
    """The results of some parts.

    Attributes:
        fragments: what the output says about each object, in their order.
        summary: the counts.
        mistakes: what is wrong with the input.
        redacted: where an object stands whose secrets are not shown; empty without.
        size: bytes of the parts.
    """

    fragments: list[str] = msgspec.field(default_factory=list)
    summary: Summary = msgspec.field(default_factory=Summary)
    mistakes: list[InputError] = msgspec.field(default_factory=list)
    redacted: str = ""
    size: int = 0


def default_jobs() -> int:
    """How many processes can run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def evaluate(parts: Sequence[Part], job: BatchJob) -> Written:
    """The results of some parts, one after the other."""
    written = Written()
    for part in parts:
        documents = _take(part, written)
        await _evaluate_all(documents, job, written)
    return written


def _take(part: Part, written: Written) -> list[Document]:
    found = read(part)
    written.size += part.size
    # A file in several pieces is counted once, with its first one.
    written.summary.files += part.line == 0
    written.summary.foreign += found.foreign
    _note(found.mistakes, written)
    return found.documents


def _note(mistakes: Iterable[InputError], written: Written) -> None:
    for mistake in mistakes:
        written.mistakes.append(mistake)
        written.summary.mistakes += 1


async def _evaluate_all(documents: Iterable[Document], job: BatchJob, written: Written) -> None:
    limit = asyncio.Semaphore(_IN_FLIGHT)

    async def one(document: Document) -> Result | InputError:
        async with limit:
            try:
                return await job.evaluator.evaluate(document)
            except InputError as error:
                return error

    results: list[Result | InputError]
    if job.evaluator.waits:
        results = await asyncio.gather(*map(one, documents))
    else:
        results = [await one(document) for document in documents]
    for result in results:
        if isinstance(result, InputError):
            _note(mistakes_of(result), written)
        else:
            _write(result, job, written)


def _write(result: Result, job: BatchJob, written: Written) -> None:
    written.summary.add(result)
    if not job.show_secrets and result.redact(job.format.parts):
        written.summary.redacted += 1
        written.redacted = written.redacted or result.source
    written.fragments.append(job.format.fragment(result))


def evaluate_in_processes(parts: Sequence[Part], job: BatchJob, jobs: int) -> Iterator[Written]:
    """The results of groups of parts, in the order of the input, as they are ready.

    Args:
        parts: what to evaluate.
        job: what to do with every object; its cluster must not wait for anything.
        jobs: how many processes run at a time.

    Raises:
        InputError: a process was killed.
    """
    groups = list(batches(parts))
    if jobs < 2 or len(groups) < 2 or sys.platform != "linux":
        for group in groups:
            yield asyncio.run(evaluate(group, job))
        return
    # A forked process has the cluster's objects already, without their being sent to it.
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(min(jobs, len(groups)), context, initializer=_begin, initargs=(job,))
    try:
        yield from executor.map(_work, groups)
    except BrokenProcessPool:
        fix = "give it more memory, or use --jobs 1"
        raise InputError("a process of the review was killed", "--jobs", fix) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_job: BatchJob | None = None


def _begin(job: BatchJob) -> None:
    """Prepare a process; Ctrl-C is for the one that started it."""
    global _job  # noqa: PLW0603 - what a forked process works on
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was there before the fork stays, and a review makes trees without cycles: there is little to collect.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    _job = job


def _work(group: list[Part]) -> Written:
    assert _job
    return _picklable(asyncio.run(evaluate(group, _job)))


def _picklable(written: Written) -> Written:
    # Several mistakes in one error cannot be sent between processes; single ones can.
    written.mistakes = [InputError(each.what, each.where, each.fix) for each in written.mistakes]
    return written
