"""A write load on the shop: a way to connect and a seed enter, row changes leave, counted.

Inserts, updates of hot keys, key changes (also of case alone, in a key whose collation ignores it),
deletes and re-inserts under the same key, transactions over several tables, many-row statements, rollbacks
and rollbacks to a savepoint. Each worker draws its transactions from the seed; how they interleave is up to
the server.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mysqlio.connection import Connection
from mysqlio.server_errors import ServerCode, ServerError, server_code
from schemas.errors import SourceError
from tidemark.demo import everything, shop

Connect = Callable[[], "Connection"]

_RETRIABLE: Final = frozenset({ServerCode.DEADLOCK, ServerCode.LOCK_WAIT_TIMEOUT, ServerCode.RECORD_CHANGED})
_TABLE_CHANGED: Final = frozenset({ServerCode.TABLE_CHANGED})
WORKERS: Final = 3
_HOT_CUSTOMERS: Final = 20
_NEW_ORDER_KEYS: Final = 1 << 40
_JOIN_SECONDS: Final = 120.0


class RollbackWantedError(Exception):
    """A transaction of the load that ends in ROLLBACK on purpose."""


@dataclass(frozen=True, slots=True)
class WorkloadCounts:
    """What a load has done; rows are counted when their transaction is committed."""

    transactions: int
    inserted: int
    updated: int
    deleted: int
    key_changes: int
    rolled_back: int

    @property
    def changes(self) -> int:
        """Rows inserted, updated and deleted."""
        return self.inserted + self.updated + self.deleted


class Workload:
    """Threads that write to the shop until stopped.

    `rate` is transactions per second over all workers, kept where the server can. `at_commit` are the last statements
    of each. A failure of a worker (a lost connection, say) ends the load and is raised by `stop`. Deadlocks and
    lock waits are rolled back and counted.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        seed: int = 1,
        rate: float = 100.0,
        sizes: dict[str, int] | None = None,
        workers: int = WORKERS,
        database: str = shop.DATABASE,
        at_commit: Sequence[str] = (),
    ) -> None:
        sizes = sizes or shop.row_counts(210_000)
        self.at_commit = at_commit
        self._stop = threading.Event()
        self.column_added = threading.Event()
        self._workers = [
            _Worker(connect, random.Random(f"{seed}/{number}"), number, workers / rate, sizes, database, self)
            for number in range(workers)
        ]
        self._threads = [
            threading.Thread(target=worker.run, args=(self._stop,), name=f"load-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]

    def start(self) -> Workload:
        """Begin to write."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> WorkloadCounts:
        """End after the running transactions; raises `SourceError` when a worker failed."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_SECONDS)
        for worker in self._workers:
            if worker.failure is not None:
                raise SourceError(f"the write load failed: {worker.failure}") from worker.failure
        return self.counts()

    def counts(self) -> WorkloadCounts:
        """Return what has been committed so far."""
        total: Counter[str] = sum((worker.committed for worker in self._workers), Counter())
        return WorkloadCounts(
            transactions=total["transactions"],
            inserted=total["inserted"],
            updated=total["updated"],
            deleted=total["deleted"],
            key_changes=total["key_changes"],
            rolled_back=total["rolled_back"],
        )


class _Worker:
    """One connection and one stream of transactions."""

    def __init__(
        self,
        connect: Connect,
        rng: random.Random,
        number: int,
        interval_s: float,
        sizes: dict[str, int],
        database: str,
        load: Workload,
    ) -> None:
        self._connect = connect
        self._rng = rng
        self._interval_s = interval_s
        self._sizes = sizes
        self._database = database
        self._load = load
        self._serial = 0
        self._number = number
        self._open: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._cursor: Any = None
        # name: how often in a hundred
        self._mix = {
            self._insert_order: 26,
            self._update_hot_customers: 16,
            self._ship_order: 12,
            self._change_everything: 10,
            self._flip_product_case: 6,
            self._rename_product: 4,
            self._move_customer: 5,
            self._delete_and_insert_again: 6,
            self._cancel_order: 5,
            self._update_many_lines: 4,
            self._insert_and_delete_at_once: 2,
            self._roll_back: 2,
            self._roll_back_to_savepoint: 2,
        }

    def run(self, stop: threading.Event) -> None:
        """Transactions at the given pace until `stop`."""
        try:
            with self._connect() as connection:
                self._work(connection, stop)
        except (ServerError, OSError) as error:
            self.failure = error
            stop.set()

    def _work(self, connection: Connection, stop: threading.Event) -> None:
        connection.autocommit(False)
        self._cursor = connection.cursor()
        self._cursor.execute(f"USE {self._database}")
        self._cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00', innodb_lock_wait_timeout = 5")
        transactions, weights = list(self._mix), list(self._mix.values())
        due = time.monotonic()
        while not stop.is_set():
            (transaction,) = self._rng.choices(transactions, weights)
            self._attempt(connection, transaction)
            due = max(due + self._interval_s, time.monotonic() - 1.0)
            stop.wait(max(0.0, due - time.monotonic()))

    def _attempt(self, connection: Connection, transaction: Callable[[], None]) -> None:
        self._open.clear()
        try:
            transaction()
            self._commit()
        except RollbackWantedError:
            connection.rollback()
            self.committed["rolled_back"] += 1
        except ServerError as error:
            if not _may_happen(error):
                raise
            connection.rollback()
            self.committed["rolled_back"] += 1

    def _commit(self) -> None:
        for statement in self._load.at_commit:
            self._cursor.execute(statement)
        self._cursor.connection.commit()
        self.committed.update(self._open)
        self.committed["transactions"] += 1
        self._open.clear()

    # --- statements, counted -----------------------------------------------------------------------------

    def _run(self, kind: str, statement: str, *values: object) -> int:
        changed: int = self._cursor.execute(statement, values or None)
        self._open[kind] += changed
        return changed

    def _insert(self, statement: str, *values: object) -> int:
        return self._run("inserted", statement, *values)

    def _update(self, statement: str, *values: object) -> int:
        return self._run("updated", statement, *values)

    def _delete(self, statement: str, *values: object) -> int:
        return self._run("deleted", statement, *values)

    def _next(self) -> int:
        """Return a number no other worker of this load gets."""
        self._serial += 1
        return self._serial * 16 + self._number

    def _any_order(self) -> int:
        return shop.order_key(self._rng.randrange(1, self._sizes["orders"] + 1))

    def _any_customer(self) -> int:
        return self._rng.randrange(1, self._sizes["customers"] + 1)

    def _any_product(self) -> str:
        return shop.product_code(self._rng.randrange(self._sizes["products"]))

    # --- transactions ------------------------------------------------------------------------------------

    def _insert_order(self) -> None:
        number = self._next()
        key = _NEW_ORDER_KEYS + number if number % 2 else shop.HIGH_KEYS * 2 - 1 - number
        total = self._rng.randrange(100_000) / 100
        customer = self._any_customer()
        self._insert("INSERT INTO orders VALUES (%s, %s, 'new', UTC_TIMESTAMP(3), %s)", key, customer, total)
        for line in range(1, self._rng.randint(2, 5)):
            code = self._any_product()
            price = self._rng.randrange(9_999) / 100
            self._insert("INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)", key, line, code, line, price)
            self._update("UPDATE products SET stock = stock - %s WHERE code = %s", line, code)
        self._update("UPDATE customers SET credit = credit - %s WHERE id = %s", total, customer)

    def _update_hot_customers(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            key = self._rng.randint(1, _HOT_CUSTOMERS)
            credit, note = self._rng.randrange(10**7) / 100, self._rng.choice(("hot", "höt 😀", None))
            self._update("UPDATE customers SET credit = %s, note = %s WHERE id = %s", credit, note, key)
            if self._load.column_added.is_set():
                self._update("UPDATE customers SET loyalty = loyalty + 1 WHERE id = %s", key)

    def _ship_order(self) -> None:
        status = self._rng.choice(shop.STATUSES)
        self._update("UPDATE orders SET status = %s WHERE id = %s", status, self._any_order())

    def _change_everything(self) -> None:
        choice = self._rng.random()
        key = self._rng.randrange(1, self._sizes["everything"] + 1)
        if choice < 0.7:
            name, value = everything.change(self._rng)
            self._update(f"UPDATE everything SET {name} = %s WHERE id = %s", value, key)
        elif choice < 0.85:
            marks = ", ".join(["%s"] * len(everything.NAMES))
            values = everything.row(1_000_000 + self._next(), self._rng)
            self._insert(f"INSERT INTO everything ({', '.join(everything.NAMES)}) VALUES ({marks})", *values)
        else:
            self._delete("DELETE FROM everything WHERE id = %s", key)

    def _flip_product_case(self) -> None:
        code = self._any_product()
        flipped = self._rng.choice((code.upper, code.lower, code.swapcase))()
        changed = self._update("UPDATE products SET code = %s WHERE code = %s", flipped, code)
        self._open["key_changes"] += changed

    def _rename_product(self) -> None:
        code = self._any_product()
        changed = self._update(
            "UPDATE products SET code = %s WHERE code = %s", f"{code[:20]}-{self._next()}", code
        )
        self._open["key_changes"] += changed

    def _move_customer(self) -> None:
        new = 1_000_000_000 - self._next()
        changed = self._update("UPDATE customers SET id = %s WHERE id = %s", new, self._any_customer())
        self._open["key_changes"] += changed

    def _delete_and_insert_again(self) -> None:
        code = self._any_product()
        if self._delete("DELETE FROM products WHERE code = %s", code):
            again = self._rng.choice((code, code.upper(), code.lower()))
            name, price = f"again {self._next()}", self._rng.randrange(9_999) / 100
            if self._rng.random() < 0.5:
                self._commit()
            self._insert("INSERT INTO products VALUES (%s, %s, %s, 1, 'new', NULL)", again, name, price)

    def _cancel_order(self) -> None:
        key = self._any_order()
        self._delete("DELETE FROM order_lines WHERE order_id = %s", key)
        self._delete("DELETE FROM orders WHERE id = %s", key)

    def _update_many_lines(self) -> None:
        first = self._rng.randrange(1, self._sizes["orders"] + 1)
        statement = "UPDATE order_lines SET quantity = quantity + 1 WHERE order_id BETWEEN %s AND %s"
        self._update(statement, first, first + 60)

    def _insert_and_delete_at_once(self) -> None:
        key = _NEW_ORDER_KEYS * 2 + self._next()
        self._insert("INSERT INTO orders VALUES (%s, 1, 'new', UTC_TIMESTAMP(3), 0)", key)
        self._delete("DELETE FROM orders WHERE id = %s", key)

    def _roll_back(self) -> None:
        self._insert_order()
        raise RollbackWantedError

    def _roll_back_to_savepoint(self) -> None:
        self._ship_order()
        kept = Counter(self._open)
        self._cursor.execute("SAVEPOINT here")
        self._insert_order()
        self._cursor.execute("ROLLBACK TO SAVEPOINT here")
        self._open = kept
        self._update_hot_customers()


def _may_happen(error: ServerError) -> bool:
    """Deadlocks, lock waits, a key that is taken, a table that was altered inside the transaction."""
    code = server_code(error)
    return code in _RETRIABLE or code in _TABLE_CHANGED or code == ServerCode.DUPLICATE_ENTRY
