"""Signals from a topic and a file: each once, none lost, wherever the process dies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkaio.committed_reader import CommittedRecord, Partition
from producer.control import channels
from producer.control.channels import FileSignals, KafkaSignals
from schemas.errors import PublishError, SignalError
from schemas.settings import KafkaSettings, Settings
from schemas.signals import channel_signal
from tests.support.producers import Source, running
from tests.support.record_producer import RecordProducer
from tests.support.topics import read_topic

LOG = {"id": "l", "type": "log", "data": {"message": "at {}"}}


def line(**signal: Any) -> str:
    return json.dumps({**LOG, **signal}) + "\n"


# ── the words of a signal ────────────────────────────────


def test_data_may_be_an_object_or_text_and_an_id_may_be_missing() -> None:
    assert channel_signal('{"type": "log", "data": {"message": "x"}}', "f-1") == ("f-1", "log", '{"message": "x"}')
    assert channel_signal('{"id": 5, "type": "log", "data": "{}"}', "f-1") == ("5", "log", "{}")
    assert channel_signal('{"id": "", "type": "pause-snapshot"}', "f-1") == ("f-1", "pause-snapshot", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[1]", "must be a JSON object, not a list"),
        ("{}", "lacks its type"),
        ('{"id": [1], "type": "log"}', "the id of a signal must be text, not a list"),
    ],
)
def test_what_is_no_signal_is_refused_with_a_clear_error(text: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        channel_signal(text, "f-1")


# ── the file ────────────────────────────────


def ids(channel: FileSignals) -> list[str]:
    return [arrived.row.id for arrived in channel.poll()]


def test_a_file_is_read_line_by_line_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    channel = FileSignals(path)
    assert ids(channel) == []
    path.write_text(line(id="a") + "\n" + line(id="b")[:-5])
    assert ids(channel) == ["a"]
    assert ids(channel) == []
    path.write_text(line(id="a") + "\n" + line(id="b") + "nonsense\n")
    found = channel.poll()
    assert found[0].row.id == "b"
    assert "is not JSON" in found[1].problem


def test_a_file_that_was_replaced_or_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text(line(id="a") + line(id="b"))
    channel = FileSignals(path)
    assert ids(channel) == ["a", "b"]
    path.write_text("")
    assert ids(channel) == []
    path.write_text(line(id="c"))
    assert ids(channel) == ["c"]
    path.write_text(line(id="d") + line(id="e"))
    assert ids(channel) == ["d", "e"]


def test_a_restart_continues_behind_the_last_signal_that_was_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text("".join(line(id=f"s{number}") for number in range(5)))
    memory = FileSignals(path).poll()[2].memory
    again = FileSignals(path)
    again.restore(json.loads(json.dumps(memory)))
    assert ids(again) == ["s3", "s4"]


# ── the topic ────────────────────────────────


class BreakingReader:
    """Raises an error behind two records, as a broker does that goes away; a real one does not when it is asked to."""

    def __init__(self, *_: Any) -> None:
        self.offset = 0

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        self.offset = max(0, *offsets.values())

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        return dict.fromkeys(partitions, (0, 4))

    def next_record(self, _timeout_s: float) -> CommittedRecord | None:
        number, self.offset = self.offset, self.offset + 1
        if number == 2 and not self.is_second:
            BreakingReader.is_second = True
            raise PublishError("the broker went away")
        return None if number > 3 else CommittedRecord("signals", 0, number, b"srv", line(id=f"s{number}").encode(), None, ())

    is_second = is_cut_off = False

    def close(self) -> None:
        pass


def test_what_came_before_an_error_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "CommittedReader", BreakingReader)
    channel = KafkaSignals("signals", "srv", KafkaSettings())
    heard = [arrived.row.id for _ in range(3) for arrived in channel.poll()]
    assert heard == ["s0", "s1", "s2", "s3"]


# ── the whole producer ────────────────────────────────


@pytest.fixture
def source(kafka, mysql80, fresh_database) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    created.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    yield created
    created.connection.close()


def settings_of(source: Source, **signal: Any) -> Settings:
    settings = source.settings()
    snapshot = replace(settings.snapshot, merge="producer", readers=1)
    return replace(settings, snapshot=snapshot, signal=replace(settings.signal, poll_interval_ms=50, **signal))


def send(source: Source, *values: Any, key: str | None = None) -> None:
    client = RecordProducer({"bootstrap.servers": source.bootstrap_servers, "enable.idempotence": True})  # once, in this order
    for value in values:
        text = value if isinstance(value, str) else json.dumps(value)
        client.produce(f"{source.name}-signal", text, key or source.name, partition=0)
    client.flush(120)


def execute(source: Source, ident: str) -> dict[str, Any]:
    data = {"data-collections": [rf"{source.schema}\.t"]}
    return {"id": ident, "type": "execute-snapshot", "data": data}


def answers(source: Source) -> list[tuple[str, str]]:
    records = read_topic(source.bootstrap_servers, f"{source.name}.notifications")
    return [(r.value["id"], r.value["type"]) for r in records if r.value["aggregate_type"] == "Signal"]


def test_signals_of_a_topic_are_carried_out_once_across_restarts(source: Source) -> None:
    settings = settings_of(source, channels=("source", "kafka"))
    with running(settings) as run:
        send(source, execute(source, "first"), execute(source, "first"), "nonsense")
        send(source, execute(source, "not-ours"), key="another")
        run.until(lambda: len(answers(source)) == 3, "all are answered")
        run.until(lambda: len(run.producer.coordinator.progress()) == 1, "one is carried out")
        run.until(lambda: run.producer.coordinator.progress()[0].state == "done", "it is done")
    send(source, execute(source, "meanwhile"))
    for _ in range(2):
        with running(settings) as run:
            run.until(lambda run=run: run.producer.coordinator.progress()[-1].request == "meanwhile", "it is heard")
            run.until(lambda run=run: run.producer.coordinator.progress()[-1].state == "done", "it is done")
            run.caught_up(source)
    assert answers(source) == [
        ("first", "ACCEPTED"),
        ("first", "REJECTED"),
        (f"{source.name}-signal-2", "REJECTED"),
        ("meanwhile", "ACCEPTED"),
    ]
    rows = [record.value["after"]["id"] for record in source.records("t")]
    assert sorted(rows) == [1, 1, 2, 2, 3, 3]


def test_a_signal_whose_checkpoint_was_never_committed_is_heard_again(source: Source, monkeypatch) -> None:
    settings = settings_of(source, channels=("source", "kafka"))
    broken = "the process dies here (on purpose)"

    with running(settings) as run:
        run.until(lambda: run.producer.reader.progress.checkpoints > 0, "it runs")
        with monkeypatch.context() as patch:
            patch.setattr(run.producer.publisher, "commit", lambda: (_ for _ in ()).throw(RuntimeError(broken)))
            send(source, execute(source, "s"))
            run.thread.join(120)
    assert str(run.error) == broken
    assert answers(source) == []
    with running(settings) as again:
        again.until(lambda: answers(source) == [("s", "ACCEPTED")], "it is answered")
        again.until(lambda: again.producer.coordinator.progress()[0].state == "done", "it is done")
    assert sorted(record.value["after"]["id"] for record in source.records("t")) == [1, 2, 3]


def test_a_file_asks_for_a_snapshot_and_progress_is_reported_in_percent(source: Source, tmp_path: Path) -> None:
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s)", [(number,) for number in range(4, 600)])
        cursor.execute("ANALYZE TABLE t")
    path = tmp_path / "signals"
    settings = settings_of(source, channels=("source", "file"), file=str(path))
    settings = replace(settings, snapshot=replace(settings.snapshot, chunk_rows=100))
    with running(settings) as run:
        path.write_text(json.dumps(execute(source, "from-file")) + "\n")
        run.until(lambda: run.producer.coordinator.progress() != [], "it is heard")
        run.until(lambda: run.producer.coordinator.progress()[0].state == "done", "it is done")
    with running(settings) as run:
        run.caught_up(source)
    records = read_topic(source.bootstrap_servers, f"{source.name}.notifications")
    reported = [r.value["additional_data"] for r in records if r.value["type"] == "IN_PROGRESS"]
    percents = [int(data["percent"]) for data in reported]
    assert percents == sorted(percents)
    assert 0 < percents[0] < 60
    assert percents[-1] == 99, "only COMPLETED says that it is done"
    assert all(int(data["eta_ms"]) >= 0 for data in reported)
    assert answers(source) == [("from-file", "ACCEPTED")]
