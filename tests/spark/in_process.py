"""Stands in for a SparkContext: does each task here and now, one after the other. What runs in workers is the same."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Sum:
    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, more: int) -> None:
        self.value += more


class Tasks:
    def __init__(self, tasks: list[Any]) -> None:
        self.tasks = tasks
        self.work: Callable[[Iterable[Any]], Iterator[Any]] = iter

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterator[Any]]) -> "Tasks":  # noqa: N802 (Spark's name)
        self.work = work
        return self

    def collect(self) -> list[Any]:
        return [row for task in self.tasks for row in self.work([pickle.loads(pickle.dumps(task))])]


class InProcess:
    """`parallelize`, `mapPartitions`, `collect` and sums: all that the driver asks of Spark."""

    defaultParallelism = 2  # noqa: N815

    def __init__(self) -> None:
        self.tasks = 0

    def accumulator(self, value: int) -> Sum:
        return Sum(value)

    def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
        assert len(tasks) == pieces
        self.tasks += len(tasks)
        return Tasks(tasks)

    def cancelAllJobs(self) -> None:  # noqa: N802
        raise AssertionError("nobody interrupts")
