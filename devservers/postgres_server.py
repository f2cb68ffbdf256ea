"""PostgreSQL servers from registry files, started as plain child processes.

PostgreSQL refuses to run as root: where we are, it runs as `nobody`, with the one right to pass folders that are ours alone.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pwd
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devservers.bundles import bundle_entries, bundle_files
from devservers.databases import PASSWORD, USER, Say
from devservers.processes import DevServerError, GuardedProcess, Server, free_port
from schemas.overriding import override
from tidemark.runtime.artifacts import build_once, cache_folder, unpack

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

VERSIONS: Final = ("postgres17", "postgres18")
OPTIONS: Final[Mapping[str, str]] = {
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "timezone": "UTC",
    "autovacuum_naptime": "10min",
}
_INITIALISED_S: Final = 120.0
_NOBODY: Final = "nobody"


def _as_nobody() -> tuple[str, ...]:
    """Return the command that gives up root's rights; nothing for another user."""
    if os.getuid() != 0:
        return ()
    program = shutil.which("setpriv")
    if program is None:
        raise DevServerError("PostgreSQL does not run as root: install setpriv (util-linux), or use another user")
    account = pwd.getpwnam(_NOBODY)
    passes = "+dac_override"
    return (
        program, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups",
        "--securebits=+no_setuid_fixup", f"--inh-caps={passes}", f"--ambient-caps={passes}",
    )  # fmt: skip


def _give_away(folder: Path) -> None:
    """Give a folder with all that it has to the user that the server runs as."""
    if os.getuid() == 0:
        account = pwd.getpwnam(_NOBODY)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid)


def install(name: str, say: Say) -> Path:
    """Return the folder of the unpacked program. Raises DevServerError for a name without a server."""
    if name not in VERSIONS:
        raise DevServerError(f"there is no server called {name!r}; there are: {', '.join(VERSIONS)}")
    identity = bundle_entries(name)[0].sha256[:12]

    def build(target: Path) -> None:
        (jar,) = bundle_files(name, say)
        say(f"{name}: unpacking")
        with zipfile.ZipFile(jar) as archive:
            packed = archive.read("postgres-linux-x86_64.txz")
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as tar:
            unpack(tar, target)

    return build_once(cache_folder() / "trees" / f"{name}-{identity}", build)


class Postgres(Server):
    """A PostgreSQL server. `user` is a superuser; `database` is there for tests, with names compared byte by byte."""

    database: Final = "tidemark"

    def __init__(self, name: str, run_dir: Path, options: Mapping[str, str] | None = None) -> None:
        super().__init__(name, run_dir)
        self._program = install(name, log.info)
        self._options = {**OPTIONS, **(options or {})}
        self.user, self.password = USER, PASSWORD
        self.port = 0
        self.data_dir = self.folder / "data"

    @property
    def jdbc_url(self) -> str:
        """The address of the database for a JDBC driver."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{self.database}"

    def connect(self, **arguments: Any) -> psycopg.Connection[Any]:
        """Connect as `user`; keyword arguments are psycopg's and win over ours: autocommit is on."""
        import psycopg

        settings = {
            "host": self.host, "port": self.port, "user": self.user, "password": self.password,
            "dbname": self.database, "autocommit": True,
        }  # fmt: skip
        return psycopg.connect(**{**settings, **arguments})

    @override
    def _choose_ports(self) -> None:
        self.port = free_port()

    @override
    def _prepare(self) -> None:
        if not self.data_dir.exists():
            shutil.copytree(_initialised(self.name, self._program), self.data_dir)
            self.data_dir.chmod(0o700)
            _give_away(self.data_dir)

    @override
    def _command(self) -> list[str]:
        options = [f"-c{key}={value}" for key, value in self._options.items()]
        binary = str(self._program / "bin" / "postgres")
        return [*_as_nobody(), binary, "-D", str(self.data_dir), "-h", self.host, "-p", str(self.port), *options]

    @override
    def _ready(self) -> bool:
        try:
            lines = (self.data_dir / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"


def _initialised(name: str, program: Path) -> Path:
    """Return a cached data directory with our user and our database in it."""
    digest = hashlib.sha256(repr((program.name, USER, PASSWORD, Postgres.database, 1)).encode()).hexdigest()[:12]

    def build(target: Path) -> None:
        data, secret, log_path = target / "data", target / "password", target / "init.log"
        data.mkdir()
        secret.write_text(PASSWORD, "utf-8")
        _give_away(target)
        env = dict(os.environ)
        command = [
            *_as_nobody(), str(program / "bin" / "initdb"), "-D", str(data), "--no-sync", "--encoding=UTF8", "--locale=C",
            f"--username={USER}", f"--pwfile={secret}", "--auth=scram-sha-256",
        ]  # fmt: skip
        _run_to_end(command, log_path, target, env, None)
        single = [*_as_nobody(), str(program / "bin" / "postgres"), "--single", "-D", str(data), "postgres"]
        _run_to_end(single, log_path, target, env, f"CREATE DATABASE {Postgres.database}\n")

    return build_once(cache_folder() / "data" / f"{name}-{digest}", build) / "data"


def _run_to_end(command: list[str], log_path: Path, folder: Path, env: Mapping[str, str], text: str | None) -> None:
    if text is not None:
        (folder / "input.sql").write_text(text, "utf-8")
        command = ["/bin/sh", "-c", 'exec "$@" < "$0"', str(folder / "input.sql"), *command]
    process = GuardedProcess.spawn(command, log_path, cwd=folder, env=env)
    if not process.wait(_INITIALISED_S):
        process.signal(signal.SIGKILL)
    if process.status != 0:
        end = "\n  ".join(log_path.read_text("utf-8", "replace").splitlines()[-15:])
        raise DevServerError(f"the data directory of {name_of(command)} could not be made; its log ends with:\n  {end}")


def name_of(command: list[str]) -> str:
    """Return the program that a command runs."""
    return next(Path(part).name for part in command if Path(part).name in ("initdb", "postgres"))


def start_postgres(name: str, run_dir: Path, options: Mapping[str, str] | None = None) -> Postgres:
    """Start a server of that name ("postgres17", "postgres18"); its files are under `run_dir/<name>`.

    Raises DevServerError for an unknown name, ArtifactError when its files are unavailable, ServerStartError with the end of the
    log otherwise.
    """
    return Postgres(name, Path(run_dir), options).start()
