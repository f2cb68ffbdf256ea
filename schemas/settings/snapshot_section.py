"""The section `snapshot`: when and how tables are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from schemas.settings.declaration import checking, problem, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFlags:
    """What `mode: configuration_based` does; names and defaults are Debezium's."""

    snapshot_data: bool = setting(default=False, help="read the captured tables at the first start")
    start_stream: bool = setting(default=False, help="follow the log after that")
    snapshot_on_data_error: bool = setting(
        default=False, help="read them again when the server no longer has the log"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseWhen:
    """A load of the source above which no chunk is read."""

    threads_running: int = setting(
        0,
        help="chunk readers wait while the source's Threads_running is above this, and continue at four fifths of it; "
        "the connections of this process count too; 0: never",
        minimum=0,
        maximum=1_000_000,
    )
    replica_lag_s: int = setting(
        0,
        help="the same for the seconds that a source which is a replica is behind its own source "
        "(Seconds_Behind_Source, Seconds_Behind_Master); 0: never",
        minimum=0,
        maximum=31_536_000,
    )


@dataclass(frozen=True, slots=True)
class StartBehaviour:
    """What a snapshot mode means: when all captured tables are read, and whether the log is followed after that."""

    at_first_start: bool = False
    at_every_start: bool = False
    when_log_is_lost: bool = False
    follows_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """How tables are read."""

    mode: Literal[
        "initial",
        "initial_only",
        "always",
        "no_data",
        "never",
        "when_needed",
        "recovery",
        "configuration_based",
    ] = setting(
        "initial",
        help="when all captured tables are read: at the first start (`initial`; `initial_only` ends after that), at "
        "every start (`always`), only when signalled (`no_data`, also `never`), at the first start and when the "
        "server no longer has the log (`when_needed`), or as in `configuration_based`",
    )
    configuration_based: SnapshotFlags = setting(
        SnapshotFlags(), help="what `mode: configuration_based` does"
    )
    readers: int = setting(4, help="connections that read chunks at the same time", minimum=1, maximum=64)
    chunk_rows: int = setting(
        50_000,
        help="rows of a table's first chunks, and of a chunk at most, about; the sizes after them follow "
        "`chunk_target_ms` and `chunk_target_bytes`",
        minimum=1,
        maximum=10_000_000,
    )
    chunk_target_ms: int = setting(
        500,
        help="milliseconds that the SELECT of a chunk should take: chunks of the table become smaller where it takes longer, "
        "and larger again up to `chunk_rows`; 0: sizes do not follow time",
        minimum=0,
        maximum=3_600_000,
    )
    chunk_target_bytes: int = setting(
        16 << 20,
        help="bytes that the SELECT of a chunk should return: as `chunk_target_ms`; 0: sizes do not follow bytes",
        minimum=0,
        maximum=1 << 40,
    )
    max_rows_per_s: int = setting(
        0,
        help="rows per second that all chunk readers together read at most, on average; 0: as many as they can",
        minimum=0,
        maximum=1_000_000_000,
    )
    pause_when: PauseWhen = setting(PauseWhen(), help="the load of the source above which no chunk is read")
    merge: Literal["spark", "producer"] = setting(
        "spark",
        help="who merges snapshot rows with the log: `spark` from topics of their own, or the `producer`, which "
        "writes them into the change topics as Debezium does; a signal may choose with `merge`",
    )
    via: Literal["auto", "kafka", "spark"] = setting(
        "auto",
        help="the way of a table's rows: through `kafka`, or by `spark`, where the merge job reads them from the source itself, "
        "straight into the sink; `auto`: large tables by `spark` where that is possible. A signal may choose with `via`",
    )
    spark_min_rows: int = setting(
        2_000_000,
        help="with `via: auto`, rows of a table by the server's statistics from which on the merge job reads them",
        minimum=0,
        maximum=10**15,
    )
    loads: int = setting(
        8, help="chunks that the merge job is asked for at the same time, with `via: spark`", minimum=1, maximum=256
    )
    load_rows: int = setting(
        200_000,
        help="rows of such a chunk, about; fewer where the server's statistics say that it has more than `chunk_bytes`",
        minimum=1,
        maximum=10_000_000,
    )
    chunk_bytes: int = setting(
        64 << 20,
        help="bytes of a chunk at most, about; with `merge: producer` its rows wait in memory, so it is never more",
        minimum=1 << 16,
        maximum=1 << 40,
    )
    follow_cascades: bool = setting(
        True,
        help="with `merge: spark`, whether children that a foreign key changed are read again and swept when their parent "
        "changes, on servers that do not log those rows (MySQL before 9.6, MariaDB)",
    )
    watermarking_strategy: Literal["insert_insert", "insert_delete"] = setting(
        "insert_insert",
        help="the row that closes a window in the signal table: one more, or the open row deleted (needs DELETE)",
    )
    consistency: Literal["chunked", "one_transaction"] = setting(
        "chunked",
        help="how the tables of a start are read: in chunks beside the log, without locks, each as of its own position; or "
        "`one_transaction`, all as of one position, before reading the log continues. If it is interrupted, it starts over",
    )
    locking_mode: Literal["none", "minimal", "extended"] = setting(
        "minimal",
        help="how `one_transaction` and signals of type BLOCKING fix their position, as `snapshot.locking.mode`: a lock while "
        "the transaction is opened (FLUSH TABLES WITH READ LOCK, or LOCK TABLES where RELOAD is not granted), until all is "
        "read, or none: exact on MariaDB, on MySQL only in a moment without commits, else refused",
    )
    lock_timeout_ms: int = setting(
        10_000,
        help="milliseconds to wait for that lock, in whole seconds, or for that moment; writers wait as long",
        minimum=1,
        maximum=3_600_000,
    )


    @property
    def at_start(self) -> StartBehaviour:
        """Return what the mode means."""
        flags = self.configuration_based
        return {
            "initial": StartBehaviour(at_first_start=True),
            "initial_only": StartBehaviour(at_first_start=True, follows_log=False),
            "always": StartBehaviour(at_first_start=True, at_every_start=True),
            "when_needed": StartBehaviour(at_first_start=True, when_log_is_lost=True),
            "configuration_based": StartBehaviour(
                at_first_start=flags.snapshot_data,
                when_log_is_lost=flags.snapshot_on_data_error,
                follows_log=flags.start_stream,
            ),
        }.get(self.mode, StartBehaviour())


@checking
def check_snapshot(snapshot: SnapshotSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    if snapshot.mode == "recovery":
        yield problem(
            "snapshot.mode",
            "recovery rebuilds Debezium's schema history, and there is none here: the log itself says which "
            "columns its rows have. Use no_data, or when_needed where the server may have lost its log",
        )
    flags = snapshot.configuration_based
    if snapshot.mode == "configuration_based" and not (flags.snapshot_data or flags.start_stream):
        yield problem(
            "snapshot.configuration_based",
            "neither reads tables nor follows the log: set snapshot_data, start_stream or both",
        )
    if snapshot.mode != "configuration_based" and flags != SnapshotFlags():
        yield problem("snapshot.configuration_based", f"says nothing with snapshot.mode: {snapshot.mode}")
