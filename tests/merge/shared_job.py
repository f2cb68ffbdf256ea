"""Tests that share the runs of one merge job, each with tables of its own: a run costs seconds, a table little.

Such a test is a generator. It writes records, and yields if they are to be merged: `MERGED` if the job is to run until it has caught up,
`DIED` if it is to die once the rows of its batch are written. It dies for all tests, and their batch is run again by the next run.

Tests that need no settings of their own share the job `PLAIN`, whatever file they are in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from schemas.columns import TableSchema
from schemas.settings import Settings
from tests.merge.lake import Crash, Step, crash, flush, merge_all, topics_of
from tests.merge.topics import TableTopics

MERGED: Final = "merged"
DIED: Final = "died"
Runs = Iterator[str]
Case = Callable[..., Runs]


class SharedJob:
    """The tests that share a job: `case` registers one, and the fixture `one_job` of their modules returns what `play` returns."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}
        self._files: set[Path] = set()

    def case(self, function: Case) -> Callable[..., None]:
        """Return the test that a generator stands for."""
        self._add(function.__name__, function, function)
        return _test_of(function)

    def _add(self, name: str, case: Case, function: Case) -> None:
        assert name not in self._cases, f"two tests of one job are named {name}"
        self._cases[name] = case
        self._files.add(Path(function.__code__.co_filename))

    def case_of(self, name: str, *values: str) -> Callable[[Case], Callable[..., None]]:
        """Return a decorator like `case` for a generator that is played once for each value of an argument."""

        def decorate(function: Case) -> Callable[..., None]:
            for value in values:
                self._add(f"{function.__name__}[{value}]", partial(function, **{name: value}), function)
            parameters = [pytest.param(id=value) for value in values]
            return pytest.mark.parametrize((), parameters)(_test_of(function))

        return decorate

    def play(self, request: pytest.FixtureRequest, scene: Callable[[], Any], merge: Callable[[Step], None]) -> Outcomes:
        """Play the tests that this run of pytest has chosen, each with a scene of its own."""
        chosen = {item.name for item in request.session.items if item.path in self._files}
        return Outcomes({name: case(scene()) for name, case in self._cases.items() if name in chosen}, merge)

    def play_tables(self, request: pytest.FixtureRequest, spark: SparkSession, settings: Settings) -> Outcomes:
        """Play them with `Tables`, by these settings."""
        made: list[TableTopics] = []

        def merge(on_step: Step) -> None:
            flush(*made)
            merge_all(spark, settings, on_step)

        return self.play(request, lambda: Tables(spark, settings, made), merge)


PLAIN: Final = SharedJob()
"""The job of tests that need no settings of their own; `conftest` has its `one_job`."""


def _test_of(function: Case) -> Callable[..., None]:
    def test(one_job: Outcomes, request: pytest.FixtureRequest) -> None:
        one_job.check(request.node.name)

    test.__name__, test.__qualname__, test.__module__ = function.__name__, function.__qualname__, function.__module__
    test.__doc__ = function.__doc__
    return test


class Outcomes:
    """The error of each test that failed."""

    def __init__(self, cases: dict[str, Runs], merge: Callable[[Step], None]) -> None:
        self._errors: dict[str, BaseException] = {}
        self._cases = cases
        self._wanted = dict.fromkeys(cases, "")
        self._resume("")
        while self._wanted:
            how = DIED if DIED in self._wanted.values() else MERGED
            try:
                self._run(how, merge)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - each test that is not over raises it
                self._errors |= dict.fromkeys(self._wanted, error)
                return
            self._resume(how)

    def check(self, name: str) -> None:
        """Raise the error of a test, if it failed."""
        if name in self._errors:
            raise self._errors[name]
        assert name in self._cases, "it was not played"

    @staticmethod
    def _run(how: str, merge: Callable[[Step], None]) -> None:
        if how == MERGED:
            merge(lambda *_: None)
            return
        with pytest.raises(Crash):
            merge(crash)

    def _resume(self, how: str) -> None:
        for name in [name for name, wanted in self._wanted.items() if wanted == how]:
            try:
                self._wanted[name] = wanted = next(self._cases[name])
                assert wanted in {MERGED, DIED}, wanted
            except StopIteration:
                del self._wanted[name]
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the test raises it
                del self._wanted[name]
                self._errors[name] = error


class Tables:
    """What a test has of the job: Spark, the settings of the sink, and topics of tables that no other test has."""

    def __init__(self, spark: SparkSession, settings: Settings, made: list[TableTopics]) -> None:
        self.spark = spark
        self.settings = settings
        self._made = made

    def topics_of(self, schema: TableSchema) -> TableTopics:
        """Make the topics of a table."""
        assert schema.full_name not in {one.table.full_name for one in self._made}, "another test has it"
        self._made.append(topics_of(self.settings, schema))
        return self._made[-1]
