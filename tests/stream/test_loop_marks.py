"""Transactions of ignored channels: nothing of them is published, all else is as it would be without them."""

from __future__ import annotations

import zlib

import pytest

from producer.stream.log_reader import LogReader
from producer.stream.transaction import OpenTransaction
from schemas.errors import ConfigError
from schemas.loop_marks import is_marked, with_comment
from schemas.overriding import override
from schemas.settings import from_mapping
from spark_jobs.replicate.apply.marked_statements import with_drop
from tests.stream.log_of_runs import TABLES, Log, Reading, table_map

_MARKS = {"east": 90, "west": 91}
_GTIDS, _TABLE_MAP = (33, 34, 162), 19


class MarkedLog(Log):
    """A log in which many transactions begin with the mark of the channel east, which is ignored, or of west; some have one later."""

    @override
    def begin(self, *, transactional: bool = True, thread: int | None = None) -> None:
        super().begin(transactional=transactional, thread=thread)
        if thread is None and self.rng.random() < 0.5:
            self.mark(self.rng.choice(("east", "east", "west")))

    @override
    def rows(self, name: str, *, present: int | None = None) -> None:
        super().rows(name, present=present)
        if self.rng.random() < 0.05:
            self.mark("east")

    def mark(self, channel: str) -> None:
        self._ids[channel] = _MARKS[channel]
        self.events.append(table_map(f"channel_{channel}", _MARKS[channel], "tidemark_meta"))
        super().rows(channel)

    def without_tables(self) -> Log:
        """The same log with tables that are not captured in transactions that begin with the mark of east; all sizes are the same."""
        log, is_first, is_of_east = Log(0, self.flavour), False, False
        for one in self.events:
            event, kind = one, one[4]
            if kind in _GTIDS:
                is_first, is_of_east = True, False
            if kind == _TABLE_MAP:
                if is_first:
                    is_first, is_of_east = False, b"channel_east" in event
                if is_of_east:
                    for name in TABLES:
                        event = event.replace(bytes([len(name)]) + name.encode(), bytes([len(name)]) + b"x" * len(name))
                    event = event[:-4] + zlib.crc32(event[:-4]).to_bytes(4, "little")
            log.events.append(event)
        return log


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize("seed", range(12))
def test_ignored_transactions_leave_nothing_and_others_are_as_without_them(seed: int, flavour: str) -> None:
    log = MarkedLog(seed, flavour).write(250)
    expected = Reading(log.without_tables(), seed, tick_s=1.0, by_runs=False).read()
    every = Reading(log, seed, tick_s=1.0, by_runs=False).read()
    assert expected.error is None
    assert 2 * len(expected.topics.topics["s.d.plain"]) < 2 * len(every.topics.topics["s.d.plain"]) < 8 * len(expected.topics.topics["s.d.plain"])
    for by_runs in (False, True):
        read = Reading(log, seed + 1, tick_s=0.02, by_runs=by_runs, ignored=("east",)).read()
        assert {**read.result, "touched": None} == {**expected.result, "touched": None}
        assert read.result["touched"] == every.result["touched"], "rows of a chunk may be older than an ignored transaction"
        for document, visible in read.topics.commits:
            assert expected.boundaries[document] == visible, "a commit is a boundary of the log, with all before it"
        if by_runs:
            assert read.runs > 10, "others are in runs still"


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_long_ignored_transaction_does_not_keep_those_before_it_from_being_committed(flavour: str, monkeypatch) -> None:
    log = MarkedLog(1, flavour)
    Log.begin(log)
    log.events.append(table_map("plain", 10))
    Log.rows(log, "plain")
    log.end()
    Log.begin(log)
    log.mark("east")
    for _ in range(50):
        log.events.append(table_map("json", 11))
        Log.rows(log, "json")
    log.end()
    reading = Reading(log, 1, tick_s=0.0, by_runs=False, ignored=("east",))
    commits, part = [], LogReader._commit_part

    def is_long_open(topics) -> bool:
        return topics.in_transaction and reading.assembler.transaction.is_ignored

    monkeypatch.setattr(type(reading.topics), "is_long_open", property(is_long_open))
    monkeypatch.setattr(LogReader, "_commit_part", lambda reader: commits.append(part(reader)))
    reading.read()
    assert reading.error is None
    assert not commits
    (first, visible), *_ = reading.topics.commits
    assert visible == {"s.d.plain": len(reading.topics.topics["s.d.plain"])}
    assert reading.boundaries[first] == visible
    assert not reading.topics.topics["s.d.json"]


def test_the_rest_of_a_transaction_of_which_a_part_is_published_is_published(monkeypatch) -> None:
    """The channel has been ignored since: a reader must not get half of a transaction."""
    log = MarkedLog(1, "mysql")
    Log.begin(log)
    log.mark("east")
    log.events.append(table_map("plain", 10))
    Log.rows(log, "plain")
    log.end()
    begun = OpenTransaction.__init__

    def in_part(transaction, *arguments, **named) -> None:
        begun(transaction, *arguments, **named)
        transaction.in_kafka = 1

    whole = Reading(log, 1, tick_s=0.0, by_runs=False).read().topics.topics["s.d.plain"]
    monkeypatch.setattr(OpenTransaction, "__init__", in_part)
    rest = Reading(log, 1, tick_s=0.0, by_runs=False, ignored=("east",)).read().topics.topics["s.d.plain"]
    assert whole
    assert rest == whole


@pytest.mark.parametrize(
    ("sql", "is_of_east"),
    [
        (with_comment("ALTER TABLE t ADD c INT", "east"), True),
        (with_comment("ALTER TABLE t ADD c INT", "west"), False),
        ("ALTER TABLE t ADD c INT /* tidemark:east */", False),
        (with_drop("DROP TABLE IF EXISTS `d`.`t`", "east", "mysql").replace("IF EXISTS ", "IF EXISTS"), False),
        (with_drop("DROP TABLE IF EXISTS `d`.`t`", "east", "mysql"), True),
        (with_drop("DROP TABLE `d`.`t`", "east", "mysql").replace(", ", ",") + " /* generated by server */", True),
        (with_drop("DROP TABLE `d`.`t`", "west", "mysql"), False),
        ("DROP TABLE `d`.`t`,`tidemark_meta`.`dropped_east` /* generated by server */", False),
        ("DROP TABLE `tidemark_meta`.`dropped_east` /* generated by server */", False),
    ],
)  # fmt: skip
def test_a_statement_is_of_the_channel_that_it_begins_with(sql: str, *, is_of_east: bool) -> None:
    assert is_marked(sql, ["east"]) == is_of_east
    assert not is_marked(sql, [])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"source": {"ignore_channels": ["East"]}}, "source.ignore_channels: 'East' is not a channel: 1 to 40 of a-z 0-9 _"),
        ({"source": {"ignore_channels": ["east"]}, "records": {"provide_transaction_metadata": True}}, "source.ignore_channels: goes"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(section, message: str) -> None:
    source = {"host": "x", "tables": ["a\\.b"], "signal_table": "a.s", **section["source"]}
    with pytest.raises(ConfigError, match=message):
        from_mapping({"name": "x", "format": {"type": "json"}, **section, "source": source})
