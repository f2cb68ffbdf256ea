"""`python -m tests.compose`: up, a signal, an ALTER, a restart of every service, `down` and `up`, `down --volumes` and `up`.

With `--from COMMIT` an upgrade follows: the services of that commit, with its own files and images, then those of now.

After each step the rows of the source and of the lake are compared by `tidemark verify` in the container of the tools.
The last line is `compose: source equals sink: <tables> tables, <rows> rows, <seconds> s`.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.compose.docker import DockerError, docker

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "tidemark-test"
SERVICES: Final = ("mysql", "kafka", "registry", "producer", "merge", "page")
_EQUAL_WITHIN_S: Final = 240
_COMMAND_S: Final = 900
_PROBES: Final = 5
_WATCH: Final = """
import sys, time
from deltalake import DeltaTable
print("watches", flush=True)
until = time.time() + 120
while time.time() < until:
    if sys.argv[1] in DeltaTable("/lake/shop/customers").to_pyarrow_table(columns=["email"])["email"].to_pylist():
        print(time.time(), flush=True)
        break
    time.sleep(0.1)
"""
"""What the container of the merge job runs to see when a row is in the table: readers see it from then on."""


class StepError(Exception):
    """What compose was asked for did not come about."""


@dataclass
class Deployment:
    """The services of compose.yaml as a project of their own, so that volumes of a user's are left alone."""

    environment: dict[str, str]
    folder: Path = ROOT
    rows: int = 0
    steps: list[tuple[str, float, float]] = field(default_factory=list)

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run `docker compose` and return what it printed; raise `StepError` with its last lines."""
        command = ["docker", "compose", "--project-name", PROJECT, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, check=False, capture_output=True, text=True, timeout=_COMMAND_S
        )
        if check and done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            message = f"docker compose {' '.join(arguments)} ended with {done.returncode}:\n{last}"
            raise StepError(message)
        return done.stdout

    def build(self) -> None:
        """Build the images of our services, those of the tools among them."""
        self.compose("build")
        self.compose("--profile", "tools", "build", "tools")

    def up(self) -> float:
        """Start what does not run and wait until all are healthy: the seconds that took."""
        began = time.monotonic()
        self.compose("up", "--detach", "--wait")
        return time.monotonic() - began

    def sql(self, statement: str) -> str:
        """Run a statement on the source, which may still be starting."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.compose("exec", "-T", "mysql", "mysql", "-utidemark", "-ptidemark", "-N", "shop", "-e", statement)
            except StepError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def change(self) -> None:
        """Insert, update and delete rows of both tables."""
        self.rows += 1
        n = self.rows
        self.sql(
            f"INSERT INTO customers (email, credit) VALUES ('c{n}@example.org', {n}.25), ('d{n}@example.org', -{n});"
            f"INSERT INTO orders (id, customer_id, status, placed) VALUES ({n + 1}, 1, 'new', NOW(3));"
            f"UPDATE customers SET credit = credit + 1 WHERE id <= {n};"
            f"DELETE FROM customers WHERE email = 'd{n - 1}@example.org'"
        )

    def seconds_to_lake(self, number: int) -> float:
        """Insert a row and return the seconds from its commit until the lake has it; both by the clock of this machine."""
        email = f"probe{number}@example.org"
        command = ["docker", "compose", "--project-name", PROJECT, "exec", "-T", "merge", "python", "-c", _WATCH, email]
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True) as watcher:
            if watcher.stdout is None or not watcher.stdout.readline():
                message = "the lake cannot be read in the container of the merge job"
                raise StepError(message)
            committed = self.sql(f"INSERT INTO customers (email, credit) VALUES ('{email}', 0); SELECT UNIX_TIMESTAMP(NOW(6))")
            seen = watcher.stdout.readline()
        if not seen:
            message = f"the row of {email} is not in the lake after 120 s:\n{self.tool('status')}"
            raise StepError(message)
        return float(seen) - float(committed)

    def tool(self, *arguments: str) -> str:
        """Run a verb of the command in the container of the tools and return what it printed, whatever its exit code."""
        return self.compose("run", "--rm", "-T", "tools", *arguments, check=False)

    def equal(self) -> tuple[float, dict[str, Any]]:
        """Wait until `tidemark verify` finds all tables equal: the seconds that took, and its report."""
        began, said = time.monotonic(), ""
        expected = {f"shop.{name}": int(self.sql(f"SELECT COUNT(*) FROM {name}")) for name in ("customers", "orders")}
        while time.monotonic() - began < _EQUAL_WITHIN_S:
            said = self.tool("verify", "--output", "json")
            try:
                report = json.loads(said)
            except ValueError:
                report = {}
            if report and _is_equal(report, expected):
                return time.monotonic() - began, report
            time.sleep(1)
        message = f"source and sink are not equal after {_EQUAL_WITHIN_S} s: {said[-2000:]}\n{self.tool('status')}"
        raise StepError(message)

    def step(self, name: str, seconds: float, what: str) -> None:
        """Compare, and note and print how long that took."""
        equal_s, _ = self.equal()
        self.steps.append((name, seconds, equal_s))
        print(f"compose: {name}: {what} {seconds:.1f} s, equal {equal_s:.1f} s later", flush=True)


def _is_equal(report: dict[str, Any], expected: dict[str, int]) -> bool:
    found = {table["table"]: table["sink_rows"] for table in report["tables"]}
    return bool(report["ok"]) and found == expected


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit; raise `StepError` where git does not know it."""
    with tempfile.TemporaryDirectory(prefix="tidemark-compose-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=False, capture_output=True)
        if archive.returncode:
            message = f"git has no commit {commit}: {archive.stderr.decode().strip()}"
            raise StepError(message)
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
        yield Path(folder)


def upgrade(deployment: Deployment, commit: str) -> None:
    """Start the services of a commit from nothing, then those of now with the volumes that they leave."""
    deployment.compose("down", "--volumes")
    deployment.rows = 0
    with checkout(commit) as folder:
        older = replace(deployment, folder=folder)
        older.build()
        seconds = older.up()
        older.change()
        older.step(f"up, of {commit}", seconds, "healthy after")
        older.change()
        deployment.rows = older.rows
        deployment.build()
        seconds = deployment.up()
    deployment.change()
    deployment.step("upgrade", seconds, "healthy after")


def play(deployment: Deployment, older: str) -> str:
    """Play all steps; the closing line."""
    began = time.monotonic()
    deployment.build()
    print(f"compose: images built in {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    up_s = deployment.up()
    while "00000000000000000000.json" not in deployment.compose(
        "exec", "-T", "merge", "ls", "/lake/shop/customers/_delta_log", check=False
    ):
        if time.monotonic() - began > _EQUAL_WITHIN_S:
            message = f"no row was merged within {_EQUAL_WITHIN_S} s"
            raise StepError(message)
        time.sleep(0.5)
    print(f"compose: first row merged {time.monotonic() - began:.1f} s after `up` began", flush=True)
    deployment.step("up", up_s, "healthy after")
    deployment.change()
    deployment.step("changes", 0, "written")
    delays = sorted(deployment.seconds_to_lake(number) for number in range(_PROBES))
    print(f"compose: a change is in the lake {delays[len(delays) // 2]:.1f} s after its commit, {delays[-1]:.1f} s at most", flush=True)
    _snapshot_by_signal(deployment)
    deployment.step("signal", 0, "answered")
    deployment.sql("ALTER TABLE customers ADD COLUMN since DATETIME(3) DEFAULT '2026-01-01 00:00:00'")
    deployment.change()
    deployment.step("alter", 0, "done")
    for service in SERVICES:
        deployment.change()
        seconds = time.monotonic()
        deployment.compose("restart", service)
        deployment.change()
        deployment.up()
        deployment.step(f"restart {service}", time.monotonic() - seconds, "healthy after")
    deployment.change()
    deployment.compose("down")
    seconds = deployment.up()
    deployment.change()
    deployment.step("down, up", seconds, "healthy after")
    deployment.compose("down", "--volumes")
    deployment.rows = 0
    seconds = deployment.up()
    deployment.change()
    deployment.step("down --volumes, up", seconds, "healthy after")
    if older:
        upgrade(deployment, older)
    _status_is_true(deployment)
    _, report = deployment.equal()
    tables = report["tables"]
    return f"{len(tables)} tables, {sum(table['sink_rows'] for table in tables)} rows"


def _snapshot_by_signal(deployment: Deployment) -> None:
    """Insert a signal and wait until the status in the producer's own container reports the table consistent later on."""
    before = _consistent_at(deployment)
    deployment.sql(
        "INSERT INTO tidemark_signal VALUES ('first', 'execute-snapshot', "
        """'{"data-collections": ["shop.orders"], "type": "INCREMENTAL"}')"""
    )
    deadline = time.monotonic() + _EQUAL_WITHIN_S
    while _consistent_at(deployment) <= before:
        if time.monotonic() > deadline:
            message = f"the signal's snapshot is not consistent after {_EQUAL_WITHIN_S} s:\n{deployment.tool('status')}"
            raise StepError(message)
        time.sleep(1)


def _consistent_at(deployment: Deployment) -> str:
    said = deployment.compose("exec", "-T", "producer", "tidemark", "status", "--output", "json")
    return str(json.loads(said)["tables"]["shop.orders"]["consistent_at"])


def _status_is_true(deployment: Deployment) -> None:
    """Require that the containers of the producer and of the tools report the same tables as consistent."""
    there = json.loads(deployment.compose("exec", "-T", "producer", "tidemark", "status", "--output", "json"))
    tools = json.loads(deployment.tool("status", "--output", "json"))
    consistent = [{name: table["consistent_at"] for name, table in said["tables"].items()} for said in (there, tools)]
    if consistent[0] != consistent[1] or not all(consistent[0].values()):
        message = f"the status differs between the containers, or calls a table not consistent: {consistent}"
        raise StepError(message)


def main() -> int:
    """0 when every step came out equal."""
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description="Run the services of compose.yaml and compare.")
    parser.add_argument("--from", dest="older", default="", metavar="COMMIT", help="at the end, upgrade from the images of that commit")
    older = parser.parse_args().older
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with docker() as environment:
            deployment = Deployment(environment)
            try:
                deployment.compose("down", "--volumes", "--remove-orphans")
                result = play(deployment, older)
            except (StepError, subprocess.TimeoutExpired) as error:
                print(f"compose: FAILED: {error}")
                for service in ("producer", "merge", "registry"):
                    print(deployment.compose("logs", "--tail", "30", service, check=False))
                return 1
            finally:
                deployment.compose("--profile", "tools", "down", "--volumes", "--remove-orphans", check=False)
    except DockerError as error:
        print(f"compose: FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    print("compose: step                 healthy    equal")
    for name, healthy_s, equal_s in deployment.steps:
        print(f"compose: {name:<20} {healthy_s:6.1f} s {equal_s:6.1f} s")
    print(f"compose: source equals sink: {result}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
