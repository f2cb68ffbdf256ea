"""What the demo runs on: servers and our two processes, all ended with this one, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from devservers import Database, Kafka, Registry
from devservers.fetching import fetch
from devservers.postgres_server import Postgres
from devservers.processes import GuardedProcess, Server
from schemas import settings as tree
from schemas.errors import TidemarkError
from tidemark.demo import pipeline_sinks, shop
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.settings import Settings

SERVERS: Final[Mapping[str, str]] = {"mysql": "mysql80", "mariadb": "mariadb114"}
NAME: Final = "demo"
POSTGRES: Final = "postgres17"
SOURCES: Final = ("north", "south", "west")
GROUP: Final = "shops"
TASK: Final = "all-shops"
_TAIL_LINES: Final = 15
_KILL_S: Final = 0.05
# Spark lives for a minute or two here: compiling its code thoroughly would cost more than it saves.
_SHORT_LIVED_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PREFIX: Final = "tidemark-demo-"

Say = Callable[[str], None]
Result = TypeVar("Result")
AnyServer = TypeVar("AnyServer", bound=Server)


class DemoError(TidemarkError):
    """The demo did not get where it should within its time."""


class ProcessFailedError(TidemarkError):
    """One of the demo's processes ended by itself."""


class RunFolder:
    """A folder in the temporary directory for the servers' data; gone when it is closed.

    A demo that was killed could not remove its folder: the next one does. The folder's name holds the pid and
    the kernel's start time of its owner, so that a reused pid is not taken for it.
    """

    def __init__(self) -> None:
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            if not _is_alive(folder.name.removeprefix(_PREFIX)):
                shutil.rmtree(folder, ignore_errors=True)
        self.path = Path(tempfile.gettempdir()) / f"{_PREFIX}{_identity(os.getpid())}"
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _identity(pid: int) -> str:
    started = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    return f"{pid}-{started}"


def _is_alive(identity: str) -> bool:
    pid = identity.partition("-")[0]
    try:
        return pid.isdigit() and _identity(int(pid)) == identity
    except OSError:
        return False


class Stack:
    """Databases, broker, registry; then processes of ours.

    `more` is needed beside them: "spark", `POSTGRES`. `folder` is for files that stay: the lake, the logs, the configuration.
    Use it in a `with` statement.
    """

    def __init__(self, databases: Sequence[str], folder: Path, say: Say, *, more: Sequence[str] = ("spark",)) -> None:
        self._more = tuple(more)
        self._postgres: Future[Postgres] | None = None
        self._kinds = [SERVERS[database] for database in databases]
        self._folder = folder.absolute()
        self._say = say
        self._servers: list[Server] = []
        self._children: dict[str, GuardedProcess] = {}
        self._run_folder: RunFolder | None = None
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="stack")
        self._work: list[Future[Any]] = []
        self._kafka: Future[Kafka] | None = None
        self._registry: Future[Registry] | None = None
        self.config_path = self._folder / "tidemark.yaml"

    def __enter__(self) -> Self:
        fetch([*self._kinds, "kafka", "registry", *self._more], self._say)
        files = [f"{name}.{kind}" for name in (*SOURCES, "task") for kind in ("yaml", "log")]
        for left in ("lake", "ice", "warehouse", "warehouse.password", "stream", "run.log", "merge.log", "tidemark.yaml", *files):
            _remove(self._folder / left)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run_folder = RunFolder()
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._kill_servers()
        while wait(self._work, _KILL_S).not_done:
            self._kill_servers()  # one that was just being started: its start ends with an error
        self._kill_servers()
        if self._run_folder is not None:
            self._run_folder.close()

    def start_servers(self) -> list[Database]:
        """Start all side by side; returns as soon as the databases are ready."""
        assert self._run_folder is not None
        path = self._run_folder.path
        self._kafka = self._submit(lambda: self._started(Kafka(path)))
        self._registry = self._submit(lambda: self._started(Registry(path)))
        if POSTGRES in self._more:
            self._postgres = self._submit(lambda: self._started(Postgres(POSTGRES, path)))
        made = [Database(kind, path / str(number)) for number, kind in enumerate(self._kinds)]
        return [one.result() for one in [self._submit(partial(self._started, database)) for database in made]]

    def configure(self, database: Database) -> Settings:
        """Wait for broker and registry and write the configuration file; its settings."""
        sinks = [{"name": "lake", "type": "delta", "path": str(self._folder / "lake")}]
        return self._configure(self._document(database, [f"{shop.DATABASE}\\..*"], sinks))

    def configure_pipeline(self, database: Database) -> Settings:
        """Write the configuration file of the pipeline, with its sinks; its settings."""
        assert self._postgres is not None
        server = self._postgres.result()
        password = self._folder / "warehouse.password"
        password.write_text(server.password, encoding="utf-8")
        url = server.jdbc_url.removeprefix("jdbc:")
        sinks = pipeline_sinks.sinks(self._folder, url, server.user, password)
        document = self._document(database, list(pipeline_sinks.CAPTURED), sinks)
        return self._configure({**document, "udfs": list(pipeline_sinks.UDFS)})

    def configure_source(self, database: Database, name: str) -> Path:
        """Write the configuration file of one source of the group, whose database has its name."""
        document = {
            **self._document(database, [f"{name}\\..*"], []),
            "name": name,
            "snapshot": {"mode": "never", "merge": "producer", "readers": 2},
            "order": {"group": GROUP},
        }
        document["source"]["signal_table"] = f"{name}.{shop.SIGNAL_TABLE}"
        return self._write(f"{name}.yaml", document)

    def configure_task(self, names: Sequence[str], target: Database) -> Path:
        """Write the file of the task that reads these sources in one order."""
        sources = [{"name": name, "exclude_tables": [f".*{shop.SIGNAL_TABLE}"]} for name in names]
        account = {"host": target.host, "port": target.port, "user": target.user, "password": target.password}
        document = {
            "task": TASK,
            "order": "global",
            "group": GROUP,
            "sources": sources,
            **self._stream(),
            "target": {"type": target.flavour, **account},
        }
        return self._write("task.yaml", document)

    def capture(self, tables: Sequence[str]) -> Settings:
        """Write other tables to be captured into the configuration file; its settings."""
        document = json.loads(self.config_path.read_text(encoding="utf-8"))
        document["source"]["tables"] = list(tables)
        return self._configure(document)

    def _configure(self, document: dict[str, Any]) -> Settings:
        tree.from_mapping(document)
        return config.load(self._write(self.config_path.name, document), {})

    def _write(self, name: str, document: dict[str, Any]) -> Path:
        path = self._folder / name
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")  # JSON is YAML
        return path

    def _document(self, database: Database, tables: list[str], sinks: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "name": NAME,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": tables,
                "signal_table": f"{shop.DATABASE}.{shop.SIGNAL_TABLE}",
            },
            **self._stream(),
            "snapshot": {"mode": "never", "readers": 2},
            "sinks": sinks,
            "spark": {"master": "local[2]"},
        }

    def _stream(self) -> dict[str, Any]:
        assert self._kafka is not None
        assert self._registry is not None
        return {
            "kafka": {"bootstrap_servers": self._kafka.result().bootstrap_servers},
            "format": {"type": "avro", "registry": self._registry.result().url},
        }

    def in_background(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Start the work on a thread; the function that waits for its result."""
        return self._submit(work).result

    def start_child(self, name: str, *arguments: str) -> None:
        """Start `tidemark` with these arguments, or the command of this name on the configuration file; its log is `<name>.log`."""
        command = [sys.executable, "-m", "tidemark", *(arguments or (name, "--config", str(self.config_path)))]
        self._children[name] = GuardedProcess.spawn(command, self._log(name), cwd=self._folder, env=_environment())

    def kill_child(self, name: str) -> None:
        """End one of our processes, which runs, by SIGKILL."""
        self.check()
        self._children.pop(name).kill()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of our commands."""
        return _environment()

    def check(self) -> None:
        """Raise `ProcessFailedError` with the end of its log when a process of ours has ended."""
        for name, child in self._children.items():
            if child.status is not None:
                log = self._log(name)
                raise ProcessFailedError(f"{name} ended with status {child.status}; the end of {log}:\n{_tail(log)}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        future = self._pool.submit(work)
        self._work.append(future)
        return future

    def _started(self, server: AnyServer) -> AnyServer:
        self._servers.append(server)
        return server.start()

    def _kill_servers(self) -> None:
        """Their data is thrown away: no need to ask."""
        for server in tuple(self._servers):
            if server.running:
                server.kill()


def _environment() -> dict[str, str]:
    """Ours, without settings that would win over the demo's, and with this checkout importable."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith(config.PREFIX) and "__" in name) and name not in _WHOLE_SETTINGS
    }
    kept.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED_JAVA)
    root = str(Path(__file__).parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH"))))
    return kept


_WHOLE_SETTINGS: Final = frozenset(
    f"{config.PREFIX}{name.upper()}" for name in tree.Settings.__dataclass_fields__
)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _tail(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "  (no log)"
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
