"""Stands in for a SparkContext: does each task here and now, one after the other. What runs in workers is the same."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any


class Sum:
    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, more: int) -> None:
        self.value += more


Work = Callable[[Iterable[Any]], Iterable[Any]]


class Tasks:
    """Partitions of rows; each row goes through pickle, as on its way to a worker and back."""

    def __init__(self, parts: list[list[Any]]) -> None:
        self.parts = parts

    def mapPartitions(self, work: Work) -> "Tasks":  # noqa: N802 (Spark's name)
        return type(self)([[pickle.loads(pickle.dumps(row)) for row in work(iter(part))] for part in self.parts])

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> "Tasks":  # noqa: N802
        parts: list[list[Any]] = [[] for _ in range(count)]
        for key, value in (pair for part in self.parts for pair in part):
            parts[place(key) % count].append((key, value))
        return Tasks(parts)

    def collect(self) -> list[Any]:
        return [row for part in self.parts for row in part]


class InProcess:
    """`parallelize`, `mapPartitions`, `partitionBy`, `collect` and sums: all that the driver asks of Spark."""

    defaultParallelism = 2  # noqa: N815
    master = "local[2]"

    def __init__(self) -> None:
        self.tasks = 0

    def accumulator(self, value: int) -> Sum:
        return Sum(value)

    def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
        assert len(tasks) == pieces
        self.tasks += len(tasks)
        return Tasks([[pickle.loads(pickle.dumps(task))] for task in tasks])

    def cancelAllJobs(self) -> None:  # noqa: N802
        raise AssertionError("no interrupt is expected")


class KilledError(BaseException):
    """The end of a worker or a driver: no `except` in the code under test sees it."""


class RepeatedTasks(Tasks):
    """Tasks of which each is done again when its worker dies, from the same pickled task."""

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:  # noqa: N802
        done = []
        for part in self.parts:
            task = pickle.dumps(part)
            try:
                made = [*work(iter(pickle.loads(task)))]
            except KilledError:
                made = [*work(iter(pickle.loads(task)))]
            done.append(made)
        return Tasks(done)


class Repeating(InProcess):
    """Repeats tasks as Spark does."""

    def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
        return RepeatedTasks(super().parallelize(tasks, pieces).parts)
