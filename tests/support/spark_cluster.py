"""A standalone Spark cluster: a master and workers of one core each, as real processes.

A worker may have folders of its own at paths of the driver: it runs in a mount namespace with an empty tmpfs over each of them.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import pyspark

from devservers._guard import children_of
from devservers.processes import Server, free_port
from tidemark.runtime import java_home

_HOME: Final = Path(pyspark.__file__).parent
_PATIENCE_S: Final = 90
_SMALL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkNode(Server):
    """One daemon of the cluster; `arguments` are the class and its own arguments."""

    def __init__(self, name: str, run_dir: Path, sign: str, *arguments: str, hidden: Sequence[Path] = ()) -> None:
        super().__init__(name, run_dir)
        self._sign, self._arguments, self._hidden = sign, arguments, hidden
        self.port = self._web = 0

    def _choose_ports(self) -> None:
        self.port, self._web = free_port(), free_port()

    def _prepare(self) -> None:
        """Nothing is kept."""

    def _command(self) -> list[str]:
        kind, *more = self._arguments
        command = [
            str(java_home(17) / "bin" / "java"), "-Xmx256m", "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{kind}",
            "--host", self.host, "--port", str(self.port), "--webui-port", str(self._web), *more,
        ]  # fmt: skip
        if not self._hidden:
            return command
        mounts = [f"mount -t tmpfs -o size=200m none {shlex.quote(str(folder))}" for folder in self._hidden]
        script = " && ".join([*mounts, f"cd {shlex.quote(str(self.folder))}", f"exec {shlex.join(command)}"])
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", script]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ, "SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(java_home(17)), "JAVA_TOOL_OPTIONS": _SMALL,
        }  # fmt: skip

    def _ready(self) -> bool:
        return self._sign in self._log_since(self._log_begin)


class SparkCluster:
    """Use it in a `with` statement; `section` is what `spark:` says of it in a configuration file.

    `hidden` are the folders that a worker does not share, of each worker that hides some.
    """

    def __init__(self, folder: Path, workers: int = 2, hidden: Sequence[Sequence[Path]] = ()) -> None:
        self._stack = ExitStack()
        self._folder = folder
        self.master = self._start("spark-master", folder, "elected leader", "master.Master")
        self.url = f"spark://{self.master.host}:{self.master.port}"
        self.workers: list[SparkNode] = []
        for number in range(workers):
            self.add_worker(hidden[number] if number < len(hidden) else ())

    def add_worker(self, hidden: Sequence[Path] = ()) -> SparkNode:
        """Start a worker that does not share these folders, which exist, with the driver."""
        number = len(self.workers)
        arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url)
        name = f"spark-worker-{number}"
        self.workers.append(self._start(name, self._folder, "registered with master", "worker.Worker", *arguments, hidden=hidden))
        return self.workers[-1]

    def _start(self, *arguments: Any, hidden: Sequence[Path] = ()) -> SparkNode:
        return self._stack.enter_context(SparkNode(arguments[0], *arguments[1:], hidden=hidden).start())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def section(self) -> dict[str, Any]:
        """Small executors, one a worker."""
        conf = {
            "spark.sql.shuffle.partitions": "2", "spark.executor.memory": "600m", "spark.cores.max": "2",
            "spark.driver.host": self.master.host, "spark.driver.bindAddress": self.master.host,
            "spark.executor.extraJavaOptions": _SMALL,
        }  # fmt: skip
        return {"master": self.url, "driver_memory": "1g", "trigger_s": 1, "conf": conf}

    def executors(self) -> list[int]:
        """Pids of those that run now, on all workers that do."""
        return [pid for worker in self.workers if worker.running for pid in children_of(worker.pid)]

    def kill_executor(self, number: int) -> None:
        """kill -9 one of those that run; waits for one."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (running := self.executors()):
            assert time.monotonic() < deadline, f"no executor was started in {_PATIENCE_S} s"
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.kill(running[number % len(running)], signal.SIGKILL)
