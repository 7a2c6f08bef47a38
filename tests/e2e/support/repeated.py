"""Something that a test does again and again beside itself, in threads of its own."""

from __future__ import annotations

import threading
from typing import ClassVar, Self


class Repeated:
    """Takes a step again and again, in so many threads, in its context; an unexpected error of one fails the test."""

    # Between two steps of a thread.
    PAUSE_SECONDS: ClassVar = 0.0

    def __init__(self, threads: int = 1) -> None:
        self._end = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        if self._errors and kind is None:
            raise self._errors[0]

    def step(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self._end.wait(self.PAUSE_SECONDS):
                self.step()
        except BaseException as error:
            self._errors.append(error)
            raise
