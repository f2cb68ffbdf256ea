"""The folder that driver and executors share, asked for on executors of this process: one of them has another folder at the path.

`tests/e2e/test_cluster_without_shared_disk.py` has the same with Spark's executors in mount namespaces of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import SinkError
from spark_jobs.jobs.shared_folder import SharedFolder


class Status(list[str]):
    """The addresses of the driver and of the executors, as Spark's map of them gives them."""

    def keys(self) -> Status:
        return self

    def mkString(self, between: str) -> str:  # noqa: N802 - as in Scala
        return between.join(self)


class Context:
    """What `SharedFolder` asks of a context. A task runs here, between the two functions of its executor."""

    defaultParallelism = 1  # noqa: N815 - as in PySpark

    def __init__(self, folder: Path, master: str = "spark://driver:7077") -> None:
        self.master, self._folder = master, folder
        self.executors: dict[str, Callable[[], Callable[[], object]]] = {}
        self.asked = 0
        self.sparkContext = self._jsc = self
        self._task: Any = None

    def sc(self) -> Context:
        return self

    env = blockManager = blockManagerId = parallelize = lambda self, *_: self  # noqa: N815

    def hostPort(self) -> str:  # noqa: N802
        return "driver:1"

    def getExecutorMemoryStatus(self) -> Status:  # noqa: N802
        return Status([self.hostPort(), *self.executors])

    def mapPartitions(self, task: Callable[[Iterator[int]], Iterator[Any]]) -> Context:  # noqa: N802
        self._task = task
        return self

    def collect(self) -> list[Any]:
        self.asked += 1
        found = []
        for address, enter in self.executors.items():
            work = self._folder / address.replace(":", "-")
            work.mkdir(exist_ok=True)
            with chdir(work):  # it distinguishes executors of one machine
                leave = enter()
                found += list(self._task(iter(())))
                leave()
        return found


def shares() -> Callable[[], object]:
    """An executor with the driver's folders."""
    return lambda: None


def has_another(folder: Path) -> Callable[[], Callable[[], object]]:
    """An executor with an empty folder at that path."""
    aside = folder.with_name(f"{folder.name}-of-the-driver")

    def enter() -> Callable[[], object]:
        folder.rename(aside)
        folder.mkdir()

        def leave() -> None:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
            aside.rename(folder)

        return leave

    return enter


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of the tables, and the one beside them."""
    monkeypatch.setattr("spark_jobs.jobs.shared_folder._VISIBLE_S", 0.0)
    monkeypatch.setattr("spark_jobs.jobs.shared_folder._LEAST_S", 0.0)
    made = (tmp_path / "lake", tmp_path / "work")
    for folder in made:
        folder.mkdir()
    return made


@pytest.mark.parametrize("hidden", [0, 1])
def test_an_executor_with_another_folder_at_the_path_is_named(folders: tuple[Path, Path], hidden: int) -> None:
    context = Context(folders[0].parent)
    context.executors = {"one:1": shares, "two:2": has_another(folders[hidden])}
    with pytest.raises(SinkError, match=f"its folder {folders[0]} is not the same on driver and executors.*{folders[hidden]}"):
        SharedFolder(context, "lake", folders).require()  # type: ignore[arg-type]
    assert not any(list(folder.iterdir()) for folder in folders), "nothing of the probe is left"


def test_executors_that_share_the_folder_are_asked_once_and_one_that_joins_is_asked_too(folders: tuple[Path, Path]) -> None:
    context = Context(folders[0].parent)
    context.executors = {"one:1": shares}
    shared = SharedFolder(context, "lake", folders)  # type: ignore[arg-type]
    shared.require()
    shared.require()
    assert context.asked == 1
    context.executors["two:2"] = has_another(folders[0])
    with pytest.raises(SinkError, match="is not the same"):
        shared.require()
    assert not any(list(folder.iterdir()) for folder in folders)


def test_with_a_local_master_nothing_is_asked(folders: tuple[Path, Path]) -> None:
    context = Context(folders[0].parent, "local[2]")
    context.executors = {"one:1": has_another(folders[0])}
    SharedFolder(context, "lake", folders).require()  # type: ignore[arg-type]
    assert context.asked == 0
