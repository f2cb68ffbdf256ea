"""What is played and who reads it: scripts of SQL, and scenarios of options for a connector and a producer.

All scripts of a session run on one server, one after the other; every scenario is one connector of Debezium and one
producer of ours that read some of the databases from the same place of the same log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

from schemas.settings import FormatSettings
from tests.conformance.differences import DESCRIBED, SALT, ZONE
from tests.conformance.generator import Generator
from tests.support import golden

END: Final = "the_end"
SIGNALS: Final = "signals"  # the database of our signal tables
Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Script:
    """Statements for one database: those before the readers start, those they read."""

    database: str
    before: tuple[str, ...]
    after: Iterable[str]

    @property
    def first(self) -> tuple[str, ...]:
        """Before the start, with the table of the last record."""
        return (*self.before, f"CREATE TABLE `{self.database}`.{END} (id INT PRIMARY KEY, v INT)")

    @property
    def last(self) -> tuple[str, ...]:
        """What every reader of the database meets last: an insert and an update."""
        table = f"`{self.database}`.{END}"
        return (f"INSERT INTO {table} VALUES (1, 0)", f"UPDATE {table} SET v = 1")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Properties of a connector, and the settings of ours that correspond to them, by section."""

    name: str
    databases: tuple[str, ...]
    connector: Options = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tables: str = ""
    avro: bool = False
    end_records: int = 2  # that the last statements of a database lead to

    @property
    def pattern(self) -> str:
        """The tables both capture."""
        return self.tables or rf"({'|'.join(self.databases)})\..*"

    @property
    def has_boundaries(self) -> bool:
        """Whether the transaction boundaries are reported."""
        return bool(self.settings.get("records", {}).get("provide_transaction_metadata"))

    @property
    def has_heartbeats(self) -> bool:
        """Whether there is a heartbeat topic."""
        return bool(self.settings.get("records", {}).get("heartbeat_interval_ms"))

    @property
    def has_statements(self) -> bool:
        """Whether there is a topic of DDL statements."""
        return self.connector.get("include.schema.changes") == "true"

    @property
    def has_snapshot(self) -> bool:
        """Whether rows are read from the tables."""
        return "snapshot" in self.settings


@dataclass(frozen=True, slots=True)
class Session:
    """One server, what is played on it, and who reads it."""

    server: str
    scripts: tuple[Script, ...]
    scenarios: tuple[Scenario, ...]


# ── scripts ────────────────────


def _golden(name: str, database: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Script:
    first, then, failing = golden.statements(name)
    kept = [tuple(item for item in part if item not in failing) for part in (first, then)]
    return Script(database, (*kept[0], *before), (*kept[1], *after))


def _random(database: str, seed: int, tables: int, steps: int, flavour: str = "mysql") -> Script:
    before = (f"CREATE DATABASE {database} CHARACTER SET utf8mb4",)
    changes = Generator(seed, tables, steps, flavour).statements()
    return Script(database, before, (*(MARIADB_ONLY if flavour == "mariadb" else MYSQL_ONLY), *changes))


def _zoned(script: Script, zone: str) -> Script:
    """The script on a server whose times are those of a zone."""
    return Script(script.database, (f"SET GLOBAL time_zone = '{zone}'", *script.before), (*IN_ZONE, *script.after))


def _begun(database: str, seed: int, tables: int, steps: int) -> Script:
    """Random tables that are in the middle of their changes when the readers start."""
    statements = tuple(Generator(seed, tables, steps).statements())
    middle = len(statements) // 2
    while statements[:middle].count("BEGIN") != statements[:middle].count("COMMIT"):
        middle += 1
    before = (
        f"CREATE DATABASE IF NOT EXISTS {SIGNALS}",
        f"CREATE DATABASE {database} CHARACTER SET utf8mb4",
        f"USE {database}",
    )
    return Script(database, (*before, *statements[:middle]), statements[middle:])


MYSQL_ONLY: Final = ("SET SESSION binlog_rows_query_log_events=ON",)
MARIADB_ONLY: Final = (
    "SET SESSION sql_mode = ''",
    "CREATE TABLE year0 (id INT PRIMARY KEY, d DATE, dt DATETIME, dt6 DATETIME(6), dn DATE NOT NULL, dtn DATETIME NOT NULL)",
    "INSERT INTO year0 VALUES (2,'0000-01-01','0000-12-31 23:59:59','0000-02-28 00:00:00.000001','0000-03-01','0000-06-07 08:09:10')",
    "CREATE TABLE zeros (id INT PRIMARY KEY, ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, tsn TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00')",
    "INSERT INTO zeros VALUES (2,'0000-00-00','0000-00-00','0000-00-00')",
    "CREATE TABLE years (id INT PRIMARY KEY, y YEAR DEFAULT 0, yn YEAR NOT NULL DEFAULT 0, yt YEAR NOT NULL DEFAULT '0')",
    "INSERT INTO years (id) VALUES (2)",
    "SET SESSION sql_mode = DEFAULT",
    "CREATE TABLE slow (id INT PRIMARY KEY) COMMENT 'waits'",
    "BEGIN",
    "INSERT INTO slow VALUES (1)",
    "DO SLEEP(1.1)",
    "COMMIT",
    "TRUNCATE TABLE slow",
)


MASKED_BEFORE: Final = (
    "CREATE TABLE k (id VARCHAR(64) PRIMARY KEY, v TEXT)",
    "CREATE TABLE m (id INT PRIMARY KEY, m0 VARCHAR(9), m3 VARCHAR(9), tr VARCHAR(20))",
    "INSERT INTO m VALUES (1,NULL,NULL,NULL),(2,'a','a','😀😀😀😀😀😀')",
)
MASKED: Final = (
    "INSERT INTO t VALUES (5,NULL,NULL,NULL),(6,'ü😀','ü😀','abcd😀fg'),(7,'','','日本語'),(8,'x','x','12345')",
    "UPDATE t SET h2='other' WHERE id=6",
    "DELETE FROM t WHERE id=4",
    "INSERT INTO k VALUES ('Grüße','a'),('b',NULL)",
    "UPDATE k SET id='c' WHERE id='b'",
    "DELETE FROM k WHERE id='c'",
    "INSERT INTO m VALUES (3,NULL,NULL,'a😀b😀c😀d'),(4,'','','ab😀😀😀😀'),(5,'b','b','😀😀😀😀😀😀')",
)
# Each in a table of its own: what the golden records of Debezium do not show.
YEARS: Final = (
    "CREATE TABLE years (id INT PRIMARY KEY, d DATE, dt DATETIME, dt6 DATETIME(6))",
    "INSERT INTO years VALUES (1,'0001-02-28','0069-12-31 23:59:59','0070-01-01 00:00:00.000001')",
    "INSERT INTO years VALUES (2,'0099-12-31','0099-12-31 00:00:00','0100-01-01 00:00:00')",
    "CREATE TABLE moments (id INT PRIMARY KEY, j JSON)",
    """INSERT INTO moments VALUES (1, JSON_OBJECT('d', CAST('2020-01-02 03:04:05.5' AS DATETIME(1)),
    'n', CAST('-00:00:01.25' AS TIME(2)), 'w', CAST('-100:10:45' AS TIME), 't', CAST('03:04:05' AS TIME)))""",
)
MANY: Final = (
    "CREATE TABLE k_many (id INT PRIMARY KEY, v INT)",
    "INSERT INTO k_many VALUES (1,1),(2,2),(3,3)",
    "UPDATE k_many SET id = 4 WHERE id = 1",
    "INSERT INTO k_many VALUES (5,5),(6,6)",
    "TRUNCATE TABLE k_many",
)
# Several events of one table in a compressed transaction: all their rows have the position of its payload.
PACKED: Final = (
    "SET SESSION binlog_transaction_compression=ON",
    "BEGIN",
    "INSERT INTO customers VALUES (160,'p1'),(161,'p2')",
    "UPDATE customers SET n = 'p3' WHERE id IN (160, 161)",
    "INSERT INTO products VALUES (160,'p')",
    "UPDATE customers SET id = 162 WHERE id = 160",
    "DELETE FROM customers WHERE id = 161",
    "COMMIT",
    "INSERT INTO products VALUES (161,'q')",
    "SET SESSION binlog_transaction_compression=OFF",
)
# What servers store and Debezium has other values for, or none: the year 0, zeros of TIMESTAMP and YEAR, keys that are left out.
EDGES_BEFORE: Final = (
    f"CREATE DATABASE IF NOT EXISTS {SIGNALS}",
    "CREATE DATABASE edges CHARACTER SET utf8mb4",
    "USE edges",
    "SET SESSION sql_mode = ''",
    "CREATE TABLE year0 (id INT PRIMARY KEY, d DATE, dt DATETIME, dt6 DATETIME(6), dn DATE NOT NULL, dtn DATETIME NOT NULL)",
    "INSERT INTO year0 VALUES (1,'0000-01-01','0000-12-31 23:59:59','0000-02-28 00:00:00.000001','0000-03-01','0000-06-07 08:09:10')",
    "CREATE TABLE zeros (id INT PRIMARY KEY, ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, tsn TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00')",
    "INSERT INTO zeros VALUES (1,'0000-00-00','0000-00-00','0000-00-00')",
    "CREATE TABLE years (id INT PRIMARY KEY, y YEAR DEFAULT 0, yn YEAR NOT NULL DEFAULT 0, yt YEAR NOT NULL DEFAULT '0')",
    "INSERT INTO years (id) VALUES (1)",
    "CREATE TABLE parts (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))",
    "INSERT INTO parts VALUES (1,'x',1),(2,'y',2)",
)
EDGES: Final = (
    "SET SESSION sql_mode = ''",
    "INSERT INTO year0 VALUES (2,'0000-01-01','0000-12-31 23:59:59','0000-02-28 00:00:00.000001','0000-03-01','0000-06-07 08:09:10')",
    "INSERT INTO zeros VALUES (2,'0000-00-00','0000-00-00','0000-00-00')",
    "INSERT INTO years (id) VALUES (2)",
    "INSERT INTO parts VALUES (3,'z',3)",
    "UPDATE parts SET b = 'w' WHERE a = 3",
    "DELETE FROM parts WHERE a = 1",
)
IN_ZONE: Final = (
    "CREATE TABLE zone (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL DEFAULT '2020-01-02 03:04:05', ts3 TIMESTAMP(3) NOT NULL DEFAULT '2020-01-02 03:04:05.678', v VARCHAR(30) DEFAULT '2020-01-02T03:04:05Z')",
    "INSERT INTO zone (id) VALUES (1)",
)

# ── scenarios ────────────────────

# Both exact: what the defaults differ in is compared where a scenario names no options.
EXACT: Final = {"bigint.unsigned.handling.mode": "precise", "enable.time.adjuster": "false"}
MASKING: Final = {
    f"column.mask.hash.v2.SHA-256.with.salt.{SALT}": r"mhash\.t\.h2,mhash\.k\.id",
    "column.mask.with.10.chars": r"mhash\.t\.h1,mhash\.m\.m3",
    "column.mask.with.0.chars": r"mhash\.m\.m0",
    "column.truncate.to.5.chars": r"mhash\.(t|m)\.tr",
}
MASKING_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "records": {
        "column_mask_hash_v2": [{"algorithm": "SHA-256", "salt": SALT, "columns": [r"mhash\.t\.h2", r"mhash\.k\.id"]}],
        "column_mask_with_chars": [
            {"chars": 10, "columns": [r"mhash\.t\.h1", r"mhash\.m\.m3"]},
            {"chars": 0, "columns": [r"mhash\.m\.m0"]},
        ],
        "column_truncate_to_chars": [{"chars": 5, "columns": [r"mhash\.(t|m)\.tr"]}],
    }
}
NO_OPTIONS: Final[Mapping[str, Any]] = {}
TIME_MODES: Final = get_args(get_type_hints(FormatSettings)["time"])  # a mode we learn is compared from then on


def _time(mode: str) -> Scenario:
    connector = EXACT | {"time.precision.mode": mode}
    # Of a DATETIME that is NOT NULL and beyond int64 in nanoseconds both stop.
    databases = ("types",) if mode == "nanoseconds" else ("types", "modes")
    return Scenario(f"time_{mode}", databases, connector, {"format": {"time": mode}})


# Debezium reads every table in one piece; chunks of few rows, so that ours are many.
def _snapshot(
    name: str,
    databases: tuple[str, ...],
    connector: Options = NO_OPTIONS,
    settings: Mapping[str, Mapping[str, Any]] = NO_OPTIONS,
    *,
    avro: bool = False,
) -> Scenario:
    snapshot = {"mode": "initial", "merge": "producer", "readers": 1, "chunk_rows": 10}
    own = {**settings, "snapshot": snapshot, "source": {"signal_table": f"{SIGNALS}.{name}"}}
    return Scenario(name, databases, {**EXACT, "snapshot.mode": "initial", **connector}, own, avro=avro)


STATEMENTS: Final = EXACT | {
    "include.schema.changes": "true",
    "schema.history.internal.store.only.captured.databases.ddl": "false",
}
WITH_SHADOWS: Final[Mapping[str, Any]] = {"exclude_tables": []}  # Debezium captures shadow tables
RANDOM: Final = (Scenario("random", ("conf",), EXACT),)  # alone: its log is long
MYSQL_SCENARIOS: Final = (
    Scenario("types", ("types",)),
    Scenario("keys", ("keys",)),
    Scenario(
        "keys_notomb",
        ("keys",),
        EXACT
        | {
            "tombstones.on.delete": "false",
            "skipped.operations": "c",
            "skip.messages.without.change": "true",
        },
        {"records": {"tombstones": False, "skipped_operations": ["c"], "skip_messages_without_change": True}},
        end_records=1,
    ),
    Scenario(
        "keys_alt",
        ("keys",),
        EXACT
        | {
            "skipped.operations": "none",
            "message.key.columns": r"keys\.k_none:a;keys\.k_comp:b,a;keys\.k_uniqnull:a",
        },
        {
            "records": {
                "skipped_operations": ["none"],
                "message_key_columns": {r"keys\.k_none": "a", r"keys\.k_comp": "b,a", r"keys\.k_uniqnull": "a"},
            }
        },
        tables=rf"keys\.(k_none|k_comp|k_uniqnull|k_auto|k_many|{END})",
    ),
    Scenario(
        "tx",
        ("tx",),
        EXACT | {"provide.transaction.metadata": "true", "include.query": "true"},
        {"records": {"provide_transaction_metadata": True, "include_query": True}},
    ),
    Scenario(
        "queries",
        ("modes",),
        EXACT | {"provide.transaction.metadata": "true", "include.query": "true"},
        {"records": {"provide_transaction_metadata": True, "include_query": True}},
    ),
    Scenario("masks", ("mhash",), EXACT | MASKING, MASKING_SETTINGS),
    Scenario(
        "columns_out",
        ("types", "keys"),
        EXACT | {"column.exclude.list": r"types\..*\.([a-c]|t.*),keys\.k_comp\.[ab],keys\.k_many\.id"},
        {"records": {"column_exclude_list": [r"types\..*\.([a-c]|t.*)", r"keys\.k_comp\.[ab]", r"keys\.k_many\.id"]}},
    ),
    Scenario(
        "columns_in",
        ("types",),
        EXACT | {"column.include.list": r"types\..*\.(id|v|[a-d].*)"},
        {"records": {"column_include_list": [r"types\..*\.(id|v|[a-d].*)"]}},
    ),
    Scenario(
        "heartbeats",
        ("hb",),
        EXACT | {"heartbeat.interval.ms": "1000"},
        {"records": {"heartbeat_interval_ms": 1000}},
    ),
    Scenario(
        "texts",
        ("types", "modes"),
        EXACT
        | {
            "decimal.handling.mode": "string",
            "bigint.unsigned.handling.mode": "long",
            "binary.handling.mode": "base64",
        },
        {"format": {"decimal": "string", "bigint_unsigned": "long", "binary": "base64"}},
    ),
    Scenario(
        "doubles",
        ("types", "modes"),
        EXACT | {"decimal.handling.mode": "double", "binary.handling.mode": "hex"},
        {"format": {"decimal": "double", "binary": "hex"}},
    ),
    Scenario(
        "urls",
        ("types",),
        EXACT | {"binary.handling.mode": "base64-url-safe"},
        {"format": {"binary": "base64-url-safe"}},
    ),
    Scenario(
        "flat",
        ("modes",),
        EXACT
        | {
            "transforms": "flat",
            "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.flat.delete.tombstone.handling.mode": "rewrite-with-tombstone",
            "transforms.flat.add.fields": "op,source.ts_ms",
            "transforms.flat.replace.null.with.default": "false",
        },
        {"records": {"unwrap": True}},
    ),
    *(_time(mode) for mode in TIME_MODES if mode != "adaptive_time_microseconds"),
    Scenario("avro", ("types", "keys", "modes"), EXACT, avro=True),
    Scenario("statements", DESCRIBED, STATEMENTS, {"source": WITH_SHADOWS}),
    Scenario(
        "statements_avro",
        DESCRIBED,
        STATEMENTS | {"provide.transaction.metadata": "true"},
        {"records": {"provide_transaction_metadata": True}, "source": WITH_SHADOWS},
        avro=True,
    ),
    _snapshot("snapshot", ("types", "keys", "begun")),
    _snapshot("snapshot_avro", ("types", "keys"), avro=True),
    _snapshot("unmasked", ("mhash",)),
    _snapshot(
        "edges",
        ("edges",),
        {"column.exclude.list": r"edges\.parts\.[ab]"},
        {"records": {"column_exclude_list": [r"edges\.parts\.[ab]"]}},
    ),
    _snapshot("masks_snapshot", ("mhash",), MASKING, MASKING_SETTINGS),
)
MARIADB_SCENARIOS: Final = (
    Scenario("mariadb_values", ("mconf",), EXACT),
    Scenario(
        "mariadb_tx",
        ("mconf",),
        EXACT | {"provide.transaction.metadata": "true", "include.query": "true", "skipped.operations": "none"},
        {"records": {"provide_transaction_metadata": True, "include_query": True, "skipped_operations": ["none"]}},
    ),
    Scenario("mariadb_statements", ("mconf",), STATEMENTS | {"include.schema.comments": "true"}),
)


def sessions(seed: int, steps: int) -> tuple[Session, ...]:
    """Everything there is; `steps` is the length of the longest random script."""
    mysql = (
        _random("modes", seed + 1, 10, steps // 5),
        _golden("types", "types", after=YEARS),
        _golden("keys", "keys", after=MANY),
        _golden("tx", "tx", after=PACKED),
        _golden("masking_hash", "mhash", MASKED_BEFORE, MASKED),
        _golden("heartbeat", "hb"),
        _golden("ddl", "ddl"),
        Script("edges", EDGES_BEFORE, EDGES),
        _begun("begun", seed + 3, 16, steps // 5),
    )
    mariadb = (_random("mconf", seed + 2, 16, steps // 4, "mariadb"),)
    return (
        Session("mysql97", (_zoned(_random("conf", seed, 24, steps), ZONE),), RANDOM),
        Session("mysql97", mysql, MYSQL_SCENARIOS),
        Session("mariadb114", mariadb, MARIADB_SCENARIOS),
    )
