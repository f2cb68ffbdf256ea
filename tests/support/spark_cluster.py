"""A standalone Spark cluster: a master and workers of one core each, as real processes."""

from __future__ import annotations

import os
import signal
import time
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

    def __init__(self, name: str, run_dir: Path, sign: str, *arguments: str) -> None:
        super().__init__(name, run_dir)
        self._sign, self._arguments = sign, arguments
        self.port = self._web = 0

    def _choose_ports(self) -> None:
        self.port, self._web = free_port(), free_port()

    def _prepare(self) -> None:
        """Nothing is kept."""

    def _command(self) -> list[str]:
        kind, *more = self._arguments
        return [
            str(java_home(17) / "bin" / "java"), "-Xmx256m", "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{kind}",
            "--host", self.host, "--port", str(self.port), "--webui-port", str(self._web), *more,
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ, "SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(java_home(17)), "JAVA_TOOL_OPTIONS": _SMALL,
        }  # fmt: skip

    def _ready(self) -> bool:
        return self._sign in self._log_since(self._log_begin)


class SparkCluster:
    """Use it in a `with` statement; `section` is what `spark:` says of it in a configuration file."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._stack = ExitStack()
        self.master = self._start("spark-master", folder, "elected leader", "master.Master")
        self.url = f"spark://{self.master.host}:{self.master.port}"
        self.workers = [
            self._start(
                f"spark-worker-{number}", folder, "registered with master",
                "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), self.url,
            )
            for number in range(workers)
        ]  # fmt: skip

    def _start(self, *arguments: Any) -> SparkNode:
        return self._stack.enter_context(SparkNode(arguments[0], *arguments[1:]).start())

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
