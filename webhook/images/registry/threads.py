"""Threads of their own for what blocks here: names that resolve slowly, and a cache directory that hangs.

Those of the event loop read the settings and the API server's longer events, too, and there are six on two cores. A
name server that does not answer would take one after the other, since a thread outlives the request that gave it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(max_workers=8, thread_name_prefix="registry")


async def in_thread(function: Callable[[], T]) -> T:
    """What a function returns that blocks."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)
