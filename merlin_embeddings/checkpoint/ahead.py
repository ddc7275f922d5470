"""Work done a little ahead of who takes its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
# One result is taken while the next is made: files are read while rows are written.
_DEPTH = 2


def run(jobs: Iterator[Callable[[], T]]) -> Iterator[T]:
    """The results of jobs in their order; few are made ahead, so that few are in memory."""
    waiting: deque[Any] = deque()
    with ThreadPoolExecutor(_DEPTH, thread_name_prefix="checkpoint") as threads:
        try:
            for job in jobs:
                waiting.append(threads.submit(job))
                if len(waiting) >= _DEPTH:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
