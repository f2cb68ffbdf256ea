"""GTID sets of both flavours: which transactions were executed. Pure.

MySQL: `uuid:1-5:7,uuid:tag:1-3`, a set of intervals per uuid and tag. MariaDB: `domain-server-sequence,...`,
the last one per domain. They find the place to resume; they never order anything (DESIGN: position).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from schemas.overriding import override

_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_MARIADB: Final = re.compile(r"(\d+)-(\d+)-(\d+)\Z")
_MAX_NUMBER: Final = (1 << 63) - 1


class GtidRun(NamedTuple):
    """Transactions of one UUID (MySQL), or of one domain and server (MariaDB, `uuid` is ""), from `first` to `last`."""

    uuid: str
    domain: int
    server_id: int
    first: int
    last: int


def parse_gtid_set(text: str, flavour: str) -> MysqlGtidSet | MariadbGtidSet:
    """Parse the set a text stands for, "" = empty. `flavour` is "mysql" or "mariadb". `ValueError`: not a set."""
    return MariadbGtidSet.parse(text) if flavour == "mariadb" else MysqlGtidSet.parse(text)


class MysqlGtidSet:
    """Intervals of transaction numbers per (uuid, tag); the tag is "" where there is none."""

    def __init__(self) -> None:
        self._intervals: dict[tuple[str, str], list[list[int]]] = {}

    @classmethod
    def parse(cls, text: str) -> MysqlGtidSet:
        """From `uuid:1-5:7:tag:1-2, ...`; white space is ignored."""
        result = cls()
        for part in "".join(text.split()).split(","):
            if not part:
                continue
            uuid, *pieces = part.split(":")
            uuid = str(UUID(uuid))
            tag = ""
            for piece in pieces:
                if _TAG.match(piece.lower()):
                    tag = piece.lower()
                    continue
                first, _, last = piece.partition("-")
                result.add_interval(uuid, tag, int(first), int(last or first))
        return result

    @property
    def intervals(self) -> Mapping[tuple[str, str], Sequence[Sequence[int]]]:
        """The first and last number of each interval, by UUID and tag."""
        return self._intervals

    def add_interval(self, uuid: str, tag: str, first: int, last: int) -> None:
        """Add the transactions first..last (inclusive)."""
        if not 1 <= first <= last <= _MAX_NUMBER:
            message = f"not an interval of transaction numbers: {first}-{last}"
            raise ValueError(message)
        intervals = self._intervals.setdefault((uuid, tag), [])
        if intervals and intervals[-1][0] <= first <= intervals[-1][1] + 1:
            intervals[-1][1] = max(intervals[-1][1], last)
            return
        at = bisect_right(intervals, first, key=lambda interval: interval[0])
        intervals.insert(at, [first, last])
        merged = [intervals[0]]
        for interval in intervals[1:]:
            if interval[0] <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], interval[1])
            else:
                merged.append(interval)
        self._intervals[uuid, tag] = merged

    def add(self, gtid: str) -> None:
        """Add `uuid:number` or `uuid:tag:number`."""
        uuid, tag, number = _split(gtid)
        self.add_interval(uuid, tag, number, number)

    def add_run(self, run: GtidRun) -> None:
        """Add the transactions of one UUID from the first number to the last."""
        self.add_interval(run.uuid, "", run.first, run.last)

    def remove(self, gtid: str) -> None:
        """Take one transaction out; nothing happens when it is not in the set."""
        uuid, tag, number = _split(gtid)
        left = []
        for first, last in self._intervals.get((uuid, tag), []):
            if first <= number <= last:
                left += [piece for piece in ([first, number - 1], [number + 1, last]) if piece[0] <= piece[1]]
            else:
                left.append([first, last])
        if left:
            self._intervals[uuid, tag] = left
        else:
            self._intervals.pop((uuid, tag), None)

    def contains(self, gtid: str) -> bool:
        """Return whether the transaction is in the set."""
        uuid, tag, number = _split(gtid)
        intervals = self._intervals.get((uuid, tag), [])
        at = bisect_right(intervals, number, key=lambda interval: interval[0]) - 1
        return at >= 0 and number <= intervals[at][1]

    def passed(self, gtid: str) -> None:
        """Note that a log has a transaction that is not in the set: nothing, as MySQL's may be in any order."""

    def is_subset_of(self, other: MysqlGtidSet) -> bool:
        """Return whether every transaction of this set is in the other."""
        for key, intervals in self._intervals.items():
            theirs = other._intervals.get(key, [])
            for first, last in intervals:
                at = bisect_right(theirs, first, key=lambda interval: interval[0]) - 1
                if at < 0 or last > theirs[at][1]:
                    return False
        return True

    def copy(self) -> MysqlGtidSet:
        """Return a set of its own with the same transactions."""
        result = MysqlGtidSet()
        result._intervals = {key: [list(i) for i in value] for key, value in self._intervals.items()}
        return result

    @override
    def __str__(self) -> str:
        parts: dict[str, str] = {}
        for uuid, tag in sorted(self._intervals):
            text = ":".join(str(a) if a == b else f"{a}-{b}" for a, b in self._intervals[uuid, tag])
            parts[uuid] = parts.get(uuid, uuid) + (f":{tag}:{text}" if tag else f":{text}")
        return ",".join(parts.values())

    @override
    def __repr__(self) -> str:
        return f"MysqlGtidSet({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, MysqlGtidSet) and self._intervals == other._intervals

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._intervals)


def _split(gtid: str) -> tuple[str, str, int]:
    uuid, _, rest = gtid.partition(":")
    tag, _, number = rest.rpartition(":")
    if tag and not _TAG.match(tag):
        message = f"not a GTID: {gtid!r}"
        raise ValueError(message)
    return uuid, tag, int(number)


class MariadbGtidSet:
    """The last GTID per replication domain; a transaction is in it when its domain has come as far."""

    def __init__(self, positions: Iterable[tuple[int, int, int]] = ()) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        for domain, server_id, sequence in positions:
            self._advance(domain, server_id, sequence)

    @classmethod
    def parse(cls, text: str) -> MariadbGtidSet:
        """From `0-1-5,1-1-3`; white space is ignored."""
        return cls(_mariadb_gtid(part) for part in "".join(text.split()).split(",") if part)

    def _advance(self, domain: int, server_id: int, sequence: int) -> None:
        if domain not in self._last or sequence > self._last[domain][1]:
            self._last[domain] = (server_id, sequence)

    def add(self, gtid: str) -> None:
        """Add `domain-server-sequence`; a sequence below the domain's last changes nothing."""
        self._advance(*_mariadb_gtid(gtid))

    def add_run(self, run: GtidRun) -> None:
        """Add the last of ascending sequences of one domain and server: the others are before it."""
        self._advance(run.domain, run.server_id, run.last)

    def contains(self, gtid: str) -> bool:
        """Return whether the transaction's domain has come that far."""
        domain, _, sequence = _mariadb_gtid(gtid)
        return domain in self._last and sequence <= self._last[domain][1]

    def passed(self, gtid: str) -> None:
        """Note that the transaction's domain is in order: what follows in it is new, even with a smaller number."""
        self._last.pop(_mariadb_gtid(gtid)[0], None)

    def copy(self) -> MariadbGtidSet:
        """Return a set of its own with the same transactions."""
        result = MariadbGtidSet()
        result._last = dict(self._last)
        return result

    @override
    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{seq}" for domain, (server, seq) in sorted(self._last.items()))

    @override
    def __repr__(self) -> str:
        return f"MariadbGtidSet({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtidSet) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._last)


def _mariadb_gtid(text: str) -> tuple[int, int, int]:
    match = _MARIADB.match(text)
    if match is None:
        message = f"not a MariaDB GTID: {text!r}"
        raise ValueError(message)
    domain, server_id, sequence = match.groups()
    return int(domain), int(server_id), int(sequence)
