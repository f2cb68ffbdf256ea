"""Spark's class archive for the merge jobs of a run: it costs a minute once, and each of thirty starts 15 s of CPU less."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from devservers import Database, Kafka, Registry
from tests.e2e.pipeline import Pipeline, create_signal_table, environment
from tests.support import spark_classes
from tests.support.servers import drop_database, new_database, shared_folder, unique_name

TABLES = ("one", "two")
ROWS = 1_200
COLUMNS = "id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12,2), at DATETIME(6)"


def learn_once(server: Database, kafka: Kafka, registry: Registry, folder: Path) -> None:
    """Make the archive where there is none. Another worker that makes it now is not waited for.

    Without it everything works, and takes longer: a machine that is too busy to make it continues.
    """
    if spark_classes.java_options():
        return
    with (shared_folder() / "spark-classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            _learn(server, kafka, registry, folder)
        except subprocess.SubprocessError as error:
            sys.stderr.write(f"Spark's classes were not learned: {error}\n")


def _learn(server: Database, kafka: Kafka, registry: Registry, folder: Path) -> None:
    database = new_database(server)
    snapshot = {"mode": "initial", "readers": 1}
    with Pipeline(unique_name("learning"), folder, server, database, kafka, registry, {"snapshot": snapshot}) as pipeline:
        with pipeline.connect() as connection, connection.cursor() as cursor:
            create_signal_table(connection)
            for table in TABLES:
                cursor.execute(f"CREATE TABLE {table} ({COLUMNS})")
                rows = [(number, f"name {number}", number, "2024-05-06 07:08:09.5") for number in range(ROWS)]
                cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", rows)
        pipeline.start("run")
        pipeline.wait_for_snapshot(*TABLES)
        for table in TABLES:
            pipeline.sql(f"UPDATE {table} SET price = 1 WHERE id % 7 = 0", f"DELETE FROM {table} WHERE id % 5 = 0")
        pipeline.wait_for_log()
        pipeline.kill("run")
        spark_classes.learn(pipeline.config_path, environment())
    drop_database(server, database)
