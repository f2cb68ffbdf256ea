"""What must be true of our records by themselves, beside what Debezium's say: versions, times, boundaries of XA. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.difference import is_same_value
from schemas.errors import TidemarkError
from schemas.position import Position, file_number


class VersionCheck:
    """A check of the source blocks of rows as they are read: the version of each is that of its position.

    Rows of one transaction have one begin, and their ordinals are in the order of their positions.
    """

    def __init__(self) -> None:
        self._last_row = (Position.MINIMUM, 0)
        self._last_gtid: Any = None

    def problems(self, op: str, source: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with a source block; one of another kind of source, or without a version, is passed over."""
        found = version_of(source)
        if found is None:
            return
        version, file = found
        position = source["pos"]
        is_row = op in ("c", "u", "d", "x")
        is_far = version.offset != position if op == "r" else version.offset > position
        if version.file != file or is_far or (version.ordinal > 0) != is_row:
            yield f"the version {source['sequence']} is not of {source['file']}:{position}"
        elif is_row:
            yield from self._in_transaction(version, source)
            yield from self._beside_last(version, position)

    def _in_transaction(self, version: Position, source: Mapping[str, Any]) -> Iterator[str]:
        """Yield a problem of a row whose transaction is that of the last row."""
        gtid, (last, position) = source.get("gtid"), self._last_row
        if gtid is not None and gtid == self._last_gtid and version.file == last.file:
            apart = (source["pos"] > position) - (source["pos"] < position)
            if version.epoch != last.epoch or version.offset != last.offset:
                yield f"the versions {version.text} and {last.text} are of one transaction, {gtid}"
            elif apart and apart != (version.ordinal > last.ordinal) - (version.ordinal < last.ordinal):
                both = f"{version.text} at {source['pos']} and {last.text} at {position}"
                yield f"the versions {both} are in another order than the rows"
        self._last_gtid = gtid

    def _beside_last(self, version: Position, position: int) -> Iterator[str]:
        """Yield a problem where a position of a transaction is behind the begin of the next one that was seen."""
        earlier, later = sorted([self._last_row, (version, position)], key=lambda row: row[0])
        if earlier[0].file == later[0].file and earlier[0].offset < later[0].offset <= earlier[1]:
            yield f"position {earlier[1]} of the transaction at {earlier[0].offset} is behind {later[0].offset}"
        self._last_row = version, position


def version_of(source: Mapping[str, Any]) -> tuple[Position, int] | None:
    """Return the version in a source block and the number of its file; None for a block that has not both."""
    try:
        return Position.parse(source["sequence"]), file_number(source["file"])
    except (TidemarkError, TypeError, ValueError, KeyError):
        return None


def boundary_problems(
    where: str, ident: str, boundaries: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], owner: str
) -> Iterator[str]:
    """Yield how the BEGIN and END of an XA transaction differ from what its rows say: Debezium reports neither.

    `rows` are the payloads of its rows, `owner` is who wrote them.
    """
    yield from _order_problems(f"{where} order of rows", [row["transaction"]["total_order"] for row in rows], owner)
    threads = {row["source"].get("thread") for row in rows}
    if len(threads) > 1:
        yield f"{where}: rows of several threads: {threads}"
    of_tables: dict[str, list[int]] = {}
    for row in rows:
        table = f"{row['source']['db']}.{row['source']['table']}"
        of_tables.setdefault(table, []).append(row["transaction"]["data_collection_order"])
    for table, orders in of_tables.items():
        yield from _order_problems(f"{where} order of rows of {table}", orders, owner)
    counts = [{"data_collection": table, "event_count": len(orders)} for table, orders in sorted(of_tables.items())]
    times = sorted({row["source"]["ts_ms"] for row in rows} or {boundary["ts_ms"] for boundary in boundaries})
    time = {"ts_ms": times[0] if len(times) == 1 else times}
    begin = {"status": "BEGIN", "id": ident, "event_count": None, "data_collections": None, **time}
    end = {"status": "END", "id": ident, "event_count": len(rows), "data_collections": counts, **time}
    published = [{**boundary, "data_collections": _sorted(boundary["data_collections"])} for boundary in boundaries]
    if not is_same_value(published, [begin, end]):
        yield f"{where}: {owner} {published!r}, by its rows {[begin, end]!r}"


def _order_problems(where: str, orders: Sequence[int], owner: str) -> Iterator[str]:
    """Yield a problem where ordinals are not 1, 2, 3 ..., each once."""
    if sorted(orders) != [*range(1, len(orders) + 1)]:
        yield f"{where}: {owner} {sorted(orders)!r}, not 1 to {len(orders)}"


def _sorted(tables: Sequence[Mapping[str, Any]] | None) -> Any:
    return None if tables is None else sorted(tables, key=table_of)


def table_of(entry: Mapping[str, Any]) -> str:
    """Return the table of an entry of a BEGIN or END."""
    return str(entry["data_collection"])


def is_one_time(struct: Mapping[str, Any]) -> bool:
    """Return whether times in milli-, micro- and nanoseconds are one time."""
    ms, us, ns = (struct.get(name) for name in ("ts_ms", "ts_us", "ts_ns"))
    if not (isinstance(ms, int) and isinstance(us, int) and isinstance(ns, int)):
        return False
    return (us // 1000, ns // 1000) == (ms, us)
