"""A write load that survives its server: a seed enters, transactions leave, whatever happens to the connection.

Hot keys, key changes (of case alone, too), deletes and re-inserts under one key, swaps of unique values, composite
keys, parents whose children InnoDB changes in silence, statements of many rows, rollbacks and savepoints, XA that ends in COMMIT or ROLLBACK later and elsewhere.
What a lost connection did to a transaction is not asked: the log shows it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from devservers import Database


@dataclass(frozen=True, slots=True)
class Table:
    """`identified_by` are columns that distinguish two versions of a row and mean the same in Avro and in mysql-replication."""

    columns: str
    key: Sequence[str]
    identified_by: Sequence[str]


TABLES: Final[Mapping[str, Table]] = {
    "hot": Table("(id INT PRIMARY KEY, n BIGINT NOT NULL, tag VARCHAR(60))", ["id"], ["n", "tag"]),
    "pairs": Table(
        "(id INT PRIMARY KEY, slot INT NOT NULL UNIQUE, n INT NOT NULL)", ["id"], ["slot", "n"]
    ),
    "words": Table(
        "(word VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n INT NOT NULL)",
        ["word"], ["n"],
    ),
    "parts": Table(
        "(a INT NOT NULL, b VARCHAR(20) NOT NULL, n BIGINT NOT NULL, pad VARCHAR(200), PRIMARY KEY (a, b))",
        ["a", "b"], ["n"],
    ),
    "ledger": Table(
        "(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n DECIMAL(12,2) NOT NULL, at DATETIME(6) NOT NULL)",
        ["id"], ["n"],
    ),
    "cleared": Table("(id INT PRIMARY KEY, n INT NOT NULL)", ["id"], ["n"]),
    "owners": Table("(id INT PRIMARY KEY, n INT NOT NULL)", ["id"], ["n"]),
    "pets": Table(
        "(id INT PRIMARY KEY, owner INT, sitter INT, n INT NOT NULL,"
        " CONSTRAINT owned FOREIGN KEY (owner) REFERENCES owners (id) ON DELETE CASCADE ON UPDATE CASCADE,"
        " CONSTRAINT kept FOREIGN KEY (sitter) REFERENCES owners (id) ON DELETE SET NULL ON UPDATE CASCADE)",
        ["id"], ["n"],
    ),
    "odd *": Table(
        "(id INT PRIMARY KEY, n INT NOT NULL, `*` VARCHAR(20), `a b` INT, `c.d` DATE, `sel``ect` INT, `_tm_reason` INT)",
        ["id"], ["n"],
    ),
    "wide": Table("(id INT PRIMARY KEY, n INT NOT NULL)", ["id"], ["n"]),
}  # fmt: skip
"""In the order in which they are made. Each is written to by a step in `Load._step`, and compared and verified by itself."""

_HOT: Final = 40
_PAIRS: Final = 300
_WORDS: Final = 400
_OWNERS: Final = 40
_PETS: Final = 200
_ODD: Final = 150
_WIDE: Final = 150
_FORGIVEN: Final = frozenset({1062, 1205, 1213, 1020, 1412, 1146, 1397, 1399, 1402, 1440, 1451, 1452, 1761})
"""Duplicate key, lock wait, deadlock, changed or missing table, XA in another state than we think, foreign keys."""
_RECONNECT_S: Final = 0.3


def create_tables(server: Database, database: str, rng: random.Random, rows: int) -> None:
    """Make the schema and its first rows, about `rows` of them."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {database}")
        for name, table in TABLES.items():
            cursor.execute(f"CREATE TABLE `{name}` {table.columns}")
        cursor.execute(
            "CREATE TABLE tidemark_signal"
            " (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
        )
        cursor.executemany("INSERT INTO hot VALUES (%s, 0, 'first')", [(key,) for key in range(_HOT)])
        slots = rng.sample(range(_PAIRS * 2), _PAIRS)
        cursor.executemany("INSERT INTO pairs VALUES (%s, %s, 0)", list(enumerate(slots)))
        cursor.executemany("INSERT INTO words VALUES (%s, 0)", [(_word(key),) for key in range(_WORDS)])
        cursor.executemany(
            "INSERT INTO parts VALUES (%s, %s, 0, %s)",
            [(key // 10, f"k{key % 10}", "x" * rng.randrange(60)) for key in range(rows // 2)],
        )
        cursor.executemany(
            "INSERT INTO ledger (n, at) VALUES (%s, NOW(6))", [(key,) for key in range(rows // 2)]
        )
        cursor.executemany("INSERT INTO cleared VALUES (%s, 0)", [(key,) for key in range(200)])
        cursor.executemany("INSERT INTO owners VALUES (%s, 0)", [(key,) for key in range(_OWNERS)])
        cursor.executemany(
            "INSERT INTO pets VALUES (%s, %s, %s, 0)",
            [(key, rng.randrange(_OWNERS), rng.randrange(_OWNERS)) for key in range(_PETS)],
        )
        cursor.executemany(
            "INSERT INTO `odd *` VALUES (%s, 0, %s, %s, '2024-02-29', 1, NULL)",
            [(key, "*" * rng.randrange(9), rng.randrange(99)) for key in range(_ODD)],
        )
        cursor.executemany("INSERT INTO wide VALUES (%s, 0)", [(key,) for key in range(_WIDE)])
        connection.commit()


def _word(number: int) -> str:
    return f"wörd-{number:04d}"


class Load:
    """Threads that write until stopped. `rate` is transactions per second over all of them. `at_commit` ends each but those by XA."""

    def __init__(
        self, server: Database, database: str, seed: int, *, rate: float, workers: int = 3, xa: bool = False, at_commit: Sequence[str] = ()
    ) -> None:
        self._server, self._database = server, database
        self._stop = threading.Event()
        self._silent = threading.Event()
        self._pause_s = workers / rate
        self._at_commit = at_commit
        self.changes_owners = True
        """Whether rows change that InnoDB changes others with."""
        self.failure: BaseException | None = None
        self._workers = [
            threading.Thread(
                target=self._run,
                args=(random.Random(f"{seed}/{number}"), number, workers, xa),
                name=f"chaos-load-{number}",
                daemon=True,
            )
            for number in range(workers)
        ]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """End after the running transactions, then give every prepared XA transaction its end."""
        self._stop.set()
        for worker in self._workers:
            worker.join(60)
            assert not worker.is_alive(), "a worker of the load hangs"
        if self.failure is not None:
            raise self.failure
        self._end_prepared()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """No new transaction is begun."""
        self._silent.set()
        try:
            yield
        finally:
            self._silent.clear()

    def _run(self, rng: random.Random, number: int, workers: int, xa: bool) -> None:
        serial = number
        idle_until = 0.0
        while not self._stop.is_set():
            try:
                with self._server.connect(database=self._database) as connection:
                    connection.autocommit(False)
                    with connection.cursor() as cursor:
                        cursor.execute("SET SESSION innodb_lock_wait_timeout = 3")
                    while not self._stop.is_set():
                        if rng.random() < 0.002:
                            idle_until = time.monotonic() + 2
                        if self._silent.is_set() or time.monotonic() < idle_until:
                            time.sleep(0.05)
                            continue
                        serial += workers
                        self._transaction(connection, rng, serial, xa=xa)
                        self._stop.wait(rng.uniform(0, 2 * self._pause_s))
            except (pymysql.err.MySQLError, OSError) as error:
                if isinstance(error, pymysql.err.ProgrammingError):
                    self.failure = error
                    return
                self._stop.wait(_RECONNECT_S)
            except BaseException as error:  # noqa: BLE001 - raised by `stop`
                self.failure = error
                return

    def _transaction(
        self, connection: pymysql.Connection[Any], rng: random.Random, serial: int, *, xa: bool
    ) -> None:
        try:
            with connection.cursor() as cursor:
                if xa and rng.random() < 0.06:
                    self._xa(cursor, rng, serial)
                    return
                for _ in range(rng.choice((1, 1, 1, 2, 3))):
                    self._step(cursor, rng, serial)
                if rng.random() < 0.08:
                    cursor.execute("SAVEPOINT here")
                    self._step(cursor, rng, serial + 1_000_000)
                    cursor.execute("ROLLBACK TO SAVEPOINT here")
                    self._step(cursor, rng, serial + 2_000_000)
                for statement in self._at_commit:
                    cursor.execute(statement)
            if rng.random() < 0.05:
                connection.rollback()
            else:
                connection.commit()
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _FORGIVEN:
                raise
            connection.rollback()

    def _xa(self, cursor: Any, rng: random.Random, serial: int) -> None:
        name = f"'{self._database}-{serial}'"
        cursor.execute(f"XA START {name}")
        try:
            self._step(cursor, rng, serial)
        except pymysql.err.MySQLError:
            cursor.execute(f"XA END {name}")
            cursor.execute(f"XA ROLLBACK {name}")
            return
        cursor.execute(f"XA END {name}")
        cursor.execute(f"XA PREPARE {name}")
        time.sleep(rng.choice((0, 0.05, 0.4)))
        cursor.execute(f"XA {rng.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} {name}")

    def _end_prepared(self) -> None:
        """Those whose worker lost its connection."""
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            for number, row in enumerate(cursor.fetchall()):
                name = row[3].decode() if isinstance(row[3], bytes) else row[3]
                if name.startswith(f"{self._database}-"):
                    cursor.execute(f"XA {'ROLLBACK' if number % 3 == 0 else 'COMMIT'} '{name}'")

    # --- what a transaction does -------------------------------------------------------------------------

    def _step(self, cursor: Any, rng: random.Random, serial: int) -> None:
        steps: list[tuple[Callable[[Any, random.Random, int], None], int]] = [
            (_update_hot, 20), (_replace_hot, 6), (_move_pair, 6), (_swap_slots, 6), (_change_word, 12),
            (_write_parts, 12), (_delete_parts, 5), (_insert_and_delete, 3), (_append, 14), (_fill_cleared, 8),
            (_many, 1), (_change_owner, 3 * self.changes_owners), (_change_pet, 6), (_change_odd, 4), (_change_wide, 5),
        ]  # fmt: skip
        (step,) = rng.choices([one for one, _ in steps], [weight for _, weight in steps])
        step(cursor, rng, serial)


def _update_hot(cursor: Any, rng: random.Random, serial: int) -> None:
    cursor.execute(
        "UPDATE hot SET n = %s, tag = %s WHERE id = %s",
        (serial, rng.choice(("a", "höt 😀", None)), int(rng.paretovariate(1.2)) % _HOT),
    )


def _replace_hot(cursor: Any, rng: random.Random, serial: int) -> None:
    key = rng.randrange(_HOT)
    cursor.execute("DELETE FROM hot WHERE id = %s", (key,))
    if rng.random() < 0.8:
        cursor.execute("INSERT INTO hot (id, n, tag) VALUES (%s, %s, 'again')", (key, serial))


def _move_pair(cursor: Any, rng: random.Random, _serial: int) -> None:
    old, new = rng.randrange(_PAIRS * 2), rng.randrange(_PAIRS * 2)
    cursor.execute("UPDATE pairs SET id = %s WHERE id = %s", (new, old))


def _swap_slots(cursor: Any, rng: random.Random, serial: int) -> None:
    one, other = rng.sample(range(_PAIRS), 2)
    cursor.execute("SELECT id, slot FROM pairs WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", (one, other))
    found = cursor.fetchall()
    if len(found) == 2:
        (a, slot_a), (b, slot_b) = found
        cursor.execute("UPDATE pairs SET slot = %s, n = %s WHERE id = %s", (-serial - 1, serial, a))
        cursor.execute("UPDATE pairs SET slot = %s WHERE id = %s", (slot_a, b))
        cursor.execute("UPDATE pairs SET slot = %s WHERE id = %s", (slot_b, a))


def _change_word(cursor: Any, rng: random.Random, serial: int) -> None:
    word = _word(rng.randrange(_WORDS))
    choice = rng.random()
    if choice < 0.4:
        cursor.execute("UPDATE words SET n = %s WHERE word = %s", (serial, word))
    elif choice < 0.7:
        spelling = rng.choice((word.upper(), word.capitalize(), word))
        cursor.execute("UPDATE words SET word = %s, n = %s WHERE word = %s", (spelling, serial, word))
    elif choice < 0.85:
        cursor.execute("DELETE FROM words WHERE word = %s", (word,))
    else:
        cursor.execute("INSERT INTO words VALUES (%s, %s)", (rng.choice((word, word.upper())), serial))


def _write_parts(cursor: Any, rng: random.Random, serial: int) -> None:
    key = rng.randrange(400)
    statement = (
        "INSERT INTO parts VALUES (%s, %s, %s, %s) ON DUPLICATE KEY UPDATE n = VALUES(n), pad = VALUES(pad)"
    )
    rows = [
        (key, f"k{rng.randrange(16)}", serial, "y" * rng.randrange(80)) for _ in range(rng.randint(1, 20))
    ]
    cursor.executemany(statement, rows)


def _delete_parts(cursor: Any, rng: random.Random, _serial: int) -> None:
    cursor.execute("DELETE FROM parts WHERE a = %s AND b > %s", (rng.randrange(400), f"k{rng.randrange(9)}"))


def _insert_and_delete(cursor: Any, _rng: random.Random, serial: int) -> None:
    cursor.execute("INSERT INTO parts VALUES (%s, 'once', 1, NULL)", (serial,))
    cursor.execute("DELETE FROM parts WHERE a = %s", (serial,))


def _append(cursor: Any, rng: random.Random, _serial: int) -> None:
    rows = [(rng.randrange(10**6) / 100,) for _ in range(rng.randint(1, 8))]
    cursor.executemany("INSERT INTO ledger (n, at) VALUES (%s, NOW(6))", rows)


def _fill_cleared(cursor: Any, rng: random.Random, serial: int) -> None:
    cursor.execute("REPLACE INTO cleared VALUES (%s, %s)", (rng.randrange(300), serial))


def _change_owner(cursor: Any, rng: random.Random, serial: int) -> None:
    """A parent goes, comes, or gets another key: its children go or change with it, unlogged up to MySQL 8."""
    key = rng.randrange(_OWNERS)
    choice = rng.random()
    if choice < 0.35:
        cursor.execute("DELETE FROM owners WHERE id = %s", (key,))
    elif choice < 0.6:
        cursor.execute("UPDATE owners SET id = %s WHERE id = %s", (rng.randrange(2 * _OWNERS), key))
    else:
        cursor.execute("INSERT INTO owners VALUES (%s, %s)", (key, serial))


def _change_pet(cursor: Any, rng: random.Random, serial: int) -> None:
    key, owner, sitter = rng.randrange(_PETS), rng.randrange(_OWNERS), rng.choice((None, rng.randrange(_OWNERS)))
    cursor.execute(
        "INSERT INTO pets VALUES (%s, %s, %s, %s)"
        " ON DUPLICATE KEY UPDATE owner = VALUES(owner), sitter = VALUES(sitter), n = VALUES(n)",
        (key, owner, sitter, serial),
    )


def _change_odd(cursor: Any, rng: random.Random, serial: int) -> None:
    key = rng.randrange(_ODD)
    if rng.random() < 0.2:
        cursor.execute("DELETE FROM `odd *` WHERE id = %s", (key,))
        return
    cursor.execute(
        "INSERT INTO `odd *` (id, n, `*`, `a b`) VALUES (%s, %s, %s, %s)"
        " ON DUPLICATE KEY UPDATE n = VALUES(n), `*` = VALUES(`*`), `sel``ect` = VALUES(n)",
        (key, serial, rng.choice(("*", None, "a*b")), serial),
    )


def _change_wide(cursor: Any, rng: random.Random, serial: int) -> None:
    """The columns that DDL has added have their defaults in new rows, and stay as they are in old ones."""
    key = rng.randrange(_WIDE)
    if rng.random() < 0.2:
        cursor.execute("DELETE FROM wide WHERE id = %s", (key,))
    else:
        cursor.execute("INSERT INTO wide (id, n) VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = VALUES(n)", (key, serial))


def _many(cursor: Any, rng: random.Random, serial: int) -> None:
    low = rng.randrange(380)
    cursor.execute("UPDATE parts SET n = %s WHERE a BETWEEN %s AND %s", (serial, low, low + 20))


def large_transaction(server: Database, database: str, rows: int, serial: int) -> None:
    """Insert `rows` rows at once; at most a million."""
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    tables = ", ".join(f"({digits}) AS t{power}" for power in range(6))
    number = " + ".join(f"t{power}.d * {10**power}" for power in range(6))
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO parts (a, b, n, pad) SELECT %s + i DIV 100, CONCAT('big', i MOD 100), i, REPEAT('z', 100)"
            f" FROM (SELECT {number} AS i FROM {tables}) AS numbers WHERE i < %s",
            (1_000_000 + serial * 10_000, rows),
        )
        connection.commit()
