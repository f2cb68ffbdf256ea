"""A broker with a listener for each job, each behind a proxy of ours: one of them can be cut off, and the others see the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from devservers import Kafka
from devservers.processes import free_port
from schemas.overriding import override
from tests.chaos.proxy import Proxy

JOBS = ("run", "merge")


class SplitKafka(Kafka):
    """`of_job(verb)` is what the configuration of a job has as `bootstrap_servers`, `proxies` are what it goes through."""

    def __init__(self, run_dir: Path, jobs: Sequence[str] = JOBS, *, session_s: int = 120) -> None:
        """A broker that is frozen for less than `session_s` is not fenced by its own controller; one that was killed needs as long."""
        super().__init__(run_dir, properties={"broker.session.timeout.ms": str(session_s * 1_000)})
        self._stack = ExitStack()
        self.proxies: Mapping[str, Proxy] = {job: self._stack.enter_context(Proxy(0)) for job in jobs}

    def of_job(self, job: str) -> str:
        return f"{self.host}:{self.proxies[job].port}"

    @override
    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._job_ports = {job: free_port() for job in self.proxies}
        for job, port in self._job_ports.items():
            self.proxies[job].lead_to(port)

    @override
    def _prepare(self) -> None:
        super()._prepare()
        names = {"PLAINTEXT": self.port, **{job.upper(): port for job, port in self._job_ports.items()}}
        advertised = {"PLAINTEXT": self.port, **{job.upper(): proxy.port for job, proxy in self.proxies.items()}}
        controller = f"CONTROLLER://{self.host}:{self._controller_port}"
        with (self.folder / "server.properties").open("a", encoding="utf-8") as file:
            file.write(f"listeners={','.join(f'{name}://{self.host}:{port}' for name, port in names.items())},{controller}\n")
            file.write(f"advertised.listeners={','.join(f'{name}://{self.host}:{port}' for name, port in advertised.items())}\n")
            protocols = ",".join(f"{name}:PLAINTEXT" for name in names)
            file.write(f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}\ninter.broker.listener.name=PLAINTEXT\n")

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        self._stack.close()

    @override
    def __enter__(self) -> Self:
        return self
