"""Offsets, topics, registry and the files between batches: no JVM, no broker."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from kafkaio import schema_registry as registry_module
from kafkaio.schema_registry import HttpRegistry
from kafkaio.slices import EARLIEST, Slice, slices_between
from schemas.errors import (
    ConfigError,
    NoRegistryError,
    RegistryAccessError,
    RegistryError,
    RegistryUnavailableError,
    SinkError,
)
from schemas.identity import SourceId
from schemas.settings import KafkaSettings, SaslSettings, from_mapping
from schemas.topics import change_topic, notifications_topic, snapshot_topic, state_topic
from spark_jobs.jobs.merge_jobs import may_pass
from spark_jobs.kafka import topic_tables as work
from spark_jobs.kafka.read import FEW_RECORDS, kafka_options, read_slices, topic_pattern
from spark_jobs.kafka.topic_tables import TopicTables, table_of
from spark_jobs.merge.job_state import JobStates, MergeState, Naming, SourceRecord
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.delta.commit_log import require_nothing_put_back, require_own_table
from spark_jobs.sinks.folder_sink import StateFiles
from spark_jobs.sinks.table_rows import key_pruning
from spark_jobs.store.files import LocalFiles


def test_records_that_were_rolled_back_are_never_read_and_lost_ones_are_an_error() -> None:
    options = kafka_options(KafkaSettings(bootstrap_servers="k:9092"))
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["failOnDataLoss"] == "true"


class Frame:
    """What `read_slices` does with a reader and a frame, and how many tasks it wants."""

    def __init__(self) -> None:
        self.read = self
        self.sparkContext = SimpleNamespace(defaultParallelism=2)
        self.tasks: int | None = None

    def __getattr__(self, _: str) -> Any:
        return lambda *_arguments, **_options: self

    def coalesce(self, tasks: int) -> Frame:
        self.tasks = tasks
        return self


@pytest.mark.parametrize(
    ("partitions", "records", "tasks"),
    [(160, 3, 2), (160, FEW_RECORDS // 160 + 1, None), (2, 3, None), (3, FEW_RECORDS // 3, 2)],
)
def test_few_records_of_many_partitions_are_read_by_as_many_tasks_as_there_are_cores(
    partitions: int, records: int, tasks: int | None
) -> None:
    """A task for each partition takes longer than the records; many records are read by all tasks that there can be."""
    spark: Any = Frame()
    slices = [Slice("t", number, 1_000_000, 1_000_000 + records) for number in range(partitions)]
    read_slices(spark, KafkaSettings(bootstrap_servers="k:9092"), slices)
    assert spark.tasks == tasks


def test_security_options_are_translated_or_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificates")
    (tmp_path / "no.key").write_text("-----BEGIN RSA PRIVATE KEY-----")
    secure = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'p"w',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": "5",
    }
    options = kafka_options(KafkaSettings(options=secure))
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert (options["kafka.ssl.truststore.type"], options["kafka.ssl.truststore.certificates"]) == ("PEM", "certificates")
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"w";'
    )
    assert "kafka.linger.ms" not in options
    sasl = SaslSettings(mechanism="SCRAM-SHA-512", username="u", password="p")
    other = kafka_options(KafkaSettings(security_protocol="SASL_PLAINTEXT", sasl=sasl, options={"sasl.mechanisms": "PLAIN"}))
    assert other["kafka.sasl.mechanism"] == "PLAIN"
    assert "PlainLoginModule" in other["kafka.sasl.jaas.config"]
    for refused, words in (
        ({"ssl.keystore.location": "/store"}, r"kafka\.options\.ssl\.keystore\.location: the merge job cannot"),
        ({"ssl.key.location": "/none"}, r"kafka\.options\.ssl\.key\.location: cannot read /none: No such file"),
        ({"ssl.key.location": str(tmp_path / "no.key")}, r"kafka\.tls\.key: cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            kafka_options(KafkaSettings(options=refused))


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_keys_are_handed_to_java_in_the_one_form_it_reads(tmp_path: Path, form: PrivateFormat) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))
    settings = KafkaSettings(options={"ssl.key.location": str(file), "ssl.key.password": "secret"})
    options = kafka_options(settings)
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert "kafka.ssl.key.password" not in options
    with pytest.raises(ConfigError, match=r"key_password_file right"):
        kafka_options(KafkaSettings(options=dict(settings.options) | {"ssl.key.password": "wrong"}))


def test_the_job_subscribes_to_the_tables_of_its_source_and_nothing_else() -> None:
    settings = from_mapping({"name": "shop", "source": {"tables": [".*"], "signal_table": "db.signals"}})
    pattern = re.compile(topic_pattern(settings))
    for topic in (change_topic("shop", "db", "t"), snapshot_topic("shop", "db", "t"), "shop.db.t.with.dots"):
        assert pattern.fullmatch(topic)
    for topic in (
        "shop",
        notifications_topic("shop"),
        state_topic("shop"),
        "shop.db.signals",
        "shopping.db.t",
        "x.db.t",
    ):
        assert not pattern.fullmatch(topic)
    assert table_of("shop.db.t.with.dots", "shop") == ("db", "t.with.dots")
    assert table_of("shop-snapshot.db.t", "shop") == ("db", "t")
    assert table_of("shop.state", "shop") is None


def test_with_another_delimiter_the_job_subscribes_to_the_same_tables() -> None:
    document = {"name": "shop", "kafka": {"topic_delimiter": "_"}, "source": {"tables": [".*"], "signal_table": "db.signals"}}
    pattern = re.compile(topic_pattern(from_mapping(document)))
    for topic in ("shop_my_db_t", "shop-snapshot_my_db_t"):
        assert pattern.fullmatch(topic)
    for topic in ("shop", "shop_state", "shop_notifications", "shop_transaction", "shop_db_signals", "shop.db.t"):
        assert not pattern.fullmatch(topic)


def test_with_another_delimiter_the_tables_say_whose_a_topic_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_PAUSE_S", 0)
    tables, asked = {("my_db", "t_x")}, []

    def read() -> set[tuple[str, str]]:
        asked.append(1)
        if len(asked) == 3:
            tables.add(("late", "t"))
        return tables

    found = TopicTables("shop", "_", read, lambda topic: topic == "shop_eu_state")
    assert found.of("shop_my_db_t_x") == found.of("shop-snapshot_my_db_t_x") == ("my_db", "t_x")
    assert len(asked) == 1
    assert found.of("shop_late_t") == ("late", "t")
    with pytest.raises(SinkError, match=r"shop_other_t .*shop_state.*kafka\.topic_delimiter"):
        found.of("shop_other_t")
    assert found.of("shop_eu_db_t") is found.of("shop-snapshot_eu_db_t") is None, "another producer's"


def test_of_a_name_with_several_dots_the_topics_say_what_is_the_table() -> None:
    found = TopicTables("shop", "__", set, lambda _: False)
    assert found.named("a.b.c", {"shop-snapshot__a.b__c"}) == ("a.b", "c")
    assert found.named("a.b.c", {"shop__a__b.c", "shop__x__y"}) == ("a", "b.c")
    assert found.named("a.b", ()) == ("a", "b")


def test_where_topics_are_named_alike_the_producers_state_says_what_is_the_table() -> None:
    found = TopicTables("shop", ".", lambda: {("my.db", "t"), ("my", "t")}, lambda _: False)
    assert found.named("my.db.t", {"shop.my.db.t"}) == ("my.db", "t")
    with pytest.raises(SinkError, match=r"names a table my\.db\.u, and the producer's state \(topic shop\.state\) does not say"):
        found.named("my.db.u", {"shop.my.db.u"})


def test_a_name_that_does_not_say_whose_a_topic_is_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_PAUSE_S", 0)
    tables = {("a b", "x.y"), ("eu", "a_b"), ("eu", "state"), ("db", "dot.ted")}
    asked = []

    def exists(topic: str) -> bool:
        asked.append(topic)
        return topic == "shop.eu.state"

    found = TopicTables("shop", ".", lambda: tables, exists)
    assert found.of("shop.a_b.x.y") == ("a b", "x.y")
    assert found.of("shop.eu.a_b") == ("eu", "a_b")
    assert found.of("shop.eu.state") == ("eu", "state")
    assert found.of("shop-snapshot.db.dot.ted") == ("db", "dot.ted")
    assert found.of("shop.db.t") == ("db", "t"), "as it says"
    assert asked == []
    assert found.of("shop.eu.db.t") is found.of("shop.eu-snapshot.db.t") is found.of("shop.eu.transaction") is None
    with pytest.raises(SinkError, match="is called like a table's"):
        found.of("shop.db.no_table")


def test_a_new_table_of_ours_is_waited_for_before_its_topic_is_taken_as_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))

    def read() -> set[tuple[str, str]]:
        return {("eu", "a_b.c")} if clock[0] > 5 else set()

    found = TopicTables("shop", ".", read, lambda topic: topic == "shop.eu.state")
    found.expect(["shop.eu.a_b.c", "shop.eu.x_y.t", "shop.eu.x_z.t"])
    assert found.of("shop.eu.a_b.c") == ("eu", "a_b.c")
    assert found.of("shop.eu.x_y.t") is None
    waited = clock[0]
    assert found.of("shop.eu.x_z.t") is None
    assert clock[0] == waited, "it was waited for already"
    with pytest.raises(SinkError, match="is called like a table's"):
        found.of("shop.eu.x_y")  # a database and a table have two names


def test_a_batch_is_what_is_between_two_offset_files(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(
        'v1\n{"batchWatermarkMs":0}\n{"t":{"0":5,"1":7},"new":{"0":0,"1":2}}'
    )
    checkpoint = SparkCheckpoint(LocalFiles(tmp_path), ".")
    assert checkpoint.offsets(-1) == {}
    ends = checkpoint.offsets(3)
    assert slices_between({"t": {0: 5, 1: 4}}, ends) == [Slice("t", 1, 4, 7), Slice("new", 1, EARLIEST, 2)]
    with pytest.raises(SinkError, match="batch 4"):
        checkpoint.offsets(4)


@pytest.mark.parametrize("end", [{}, {"t": {}}, {"t": {0: 3}}])
def test_a_topic_that_went_back_or_away_stops_the_job(end: dict[str, dict[int, int]]) -> None:
    with pytest.raises(SinkError, match="deleted or created again"):
        slices_between({"t": {0: 4}}, end)


def test_the_state_of_a_batch_is_read_back_as_it_was_and_only_by_its_query(tmp_path: Path) -> None:
    naming = Naming(SourceId("p"), "lake", lambda name, _: (name[0], name[2:]))
    table = naming.table("a", "b")
    source, target = SourceRecord(merged=3, change_offsets={0: 9}), TargetRecord(5, (1, 4), ("id",))
    store = JobStates(StateFiles(LocalFiles(tmp_path), "."), naming)
    state = MergeState("q", 5, {table: source}, {naming.own_target(table): target}, ("x",), {"t": "id"})
    store.save(state)
    assert store.load("q", 5) == state
    assert store.load("q", -1).sources == {}
    for query, batch in (("other", 5), ("q", 4)):
        with pytest.raises(SinkError, match="snapshot the tables again"):
            store.load(query, batch)
    (tmp_path / "5.json").write_text("{")
    with pytest.raises(SinkError):
        store.load("q", 5)


def test_the_state_of_a_batch_keeps_apart_tables_with_dots_in_their_names(tmp_path: Path) -> None:
    def guess(name: str, _: object) -> tuple[str, str]:
        raise AssertionError(name)

    naming = Naming(SourceId("p"), "lake", guess)
    names = (("my.db", "t"), ("my", "db.t"), ("a:b", "c`d"), ("my", "t"))
    tables = [naming.table(*name) for name in names]
    sources = {table: SourceRecord(merged=number) for number, table in enumerate(tables)}
    targets = {naming.own_target(table): TargetRecord(number) for number, table in enumerate(tables)}
    store = JobStates(StateFiles(LocalFiles(tmp_path), "."), naming)
    state = MergeState("q", 5, sources, targets)
    store.save(state)
    assert store.load("q", 5) == state


def test_only_a_checkpoint_at_least_as_new_as_the_sink_is_accepted(tmp_path: Path) -> None:
    checkpoint, progress, states = tmp_path / "checkpoint", tmp_path / "progress.json", tmp_path / "state"
    files = LocalFiles(tmp_path)

    def require_own_sink() -> None:
        SparkCheckpoint(files, "checkpoint").require_own_sink("progress.json", StateFiles(files, "state"))

    (checkpoint / "offsets").mkdir(parents=True)
    require_own_sink()
    progress.write_text('{"query_id": "q", "batch_id": 2}')
    with pytest.raises(SinkError, match="not the one"):
        require_own_sink()
    (checkpoint / "metadata").write_text('{"id": "q"}')
    with pytest.raises(SinkError, match="ends at -1"):
        require_own_sink()
    (checkpoint / "offsets" / "2").write_text("")
    require_own_sink()
    progress.unlink()
    states.mkdir()
    (states / "3.json").write_text("")
    with pytest.raises(SinkError, match=r"has batch 3, its checkpoint .* ends at 2"):
        require_own_sink()


def test_a_table_must_be_as_the_job_left_it(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()

    def commit(version: int, metadata: str | None, operation: str = "WRITE", mode: str = "Append") -> None:
        info: dict[str, Any] = {"operation": operation, "operationParameters": {"mode": mode}}
        info |= {"userMetadata": metadata} if metadata else {}
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))

    commit(0, None)
    with pytest.raises(SinkError, match="no merge job has written"):
        require_own_table(tmp_path, "q", -1, 0)
    commit(1, '{"tidemark":1,"query_id":"q","batch_id":7}')
    commit(2, "a person's note")
    require_own_table(tmp_path, "q", 7, 9)
    require_own_table(tmp_path, "q", 3, 7)
    for query, last in (("q", 6), ("q", 8), ("other", 7)):
        with pytest.raises(SinkError, match="snapshot the tables again"):
            require_own_table(tmp_path, query, last, 9)
    commit(3, '{"tidemark":1,"query_id":"q","batch_id":8,"redrive":"x"}')
    assert require_own_table(tmp_path, "q", 7, 9) == 1
    assert require_nothing_put_back(tmp_path, "q", 1) == 3
    for operation, mode in (("RESTORE", ""), ("CLONE", ""), ("CREATE OR REPLACE TABLE AS SELECT", ""), ("WRITE", "Overwrite")):
        commit(4, None, operation, mode)
        with pytest.raises(SinkError, match=f"{operation} replaced the table"):
            require_own_table(tmp_path, "q", 7, 9)
        with pytest.raises(SinkError, match=f"{operation} replaced the table"):
            require_nothing_put_back(tmp_path, "q", 1)


def test_what_lays_a_table_out_again_or_adds_to_its_log_is_no_replacement(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    stamp = '{"tidemark":1,"query_id":"q","batch_id":7}'
    ours = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "userMetadata": stamp}
    (log / f"{1:020d}.json").write_text(json.dumps({"commitInfo": ours}))
    for name in ("checkpoint.0e2b9f3c-6f0a-4f4e-9d0e-3c1b7a0c1a11.json", f"{3:020d}.compacted.json"):
        (log / f"{1:020d}.{name}").write_text("{}")
    assert require_own_table(tmp_path, "q", 7, 9) == 1

    def commit(operation: str, mode: str, *changes: bool) -> None:
        lines: list[dict[str, Any]] = [{"commitInfo": {"operation": operation, "operationParameters": {"mode": mode}}}]
        lines += [{("remove", "add")[number % 2]: {"dataChange": change}} for number, change in enumerate(changes)]
        (log / f"{2:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")

    commit("REPLACE COLUMNS", "")
    assert require_nothing_put_back(tmp_path, "q", 1) == 2
    commit("WRITE", "Overwrite", False, False)
    assert (require_own_table(tmp_path, "q", 7, 9), require_nothing_put_back(tmp_path, "q", 1)) == (1, 2)
    for operation, changes in (("WRITE", (False, True)), ("REPLACE TABLE AS SELECT", ()), ("RESTORE", (False,))):
        commit(operation, "Overwrite", *changes)
        with pytest.raises(SinkError, match="replaced the table"):
            require_own_table(tmp_path, "q", 7, 9)


def test_files_are_skipped_by_a_range_of_keys_only_where_it_is_narrow() -> None:
    assert key_pruning("id", (100, 200), (0, 1_000)) == ""
    assert key_pruning(None, (1, 2), (0, 10**9)) == ""
    condition = key_pruning("id", (10**6, 10**6 + 10), (0, 10**9))
    assert condition == "t.`id` BETWEEN 983040 AND 1048576"
    assert key_pruning("id", (10**6 + 5, 10**6 + 99), (0, 10**9)) == condition, (
        "a moving range keeps its constants"
    )
    assert key_pruning("id", (2**63 - 5, 2**63 - 1), (0, 2**63 - 1)).endswith(str(2**63 - 1))


class Registry(BaseHTTPRequestHandler):
    """Two versions of one subject; the first answers are 503."""

    failures: ClassVar[int] = 0
    refusal: ClassVar[tuple[int, bytes] | None] = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        if type(self).failures:
            type(self).failures -= 1
            self.send_error(503)
            return
        answers: dict[str, Any] = {
            "/subjects/t-value/versions": [1, 2],
            "/subjects/t-value/versions/1": {"version": 1, "id": 11, "schema": '{"type":"record"}'},
            "/subjects/t-value/versions/2": {"version": 2, "id": 12, "schema": '"string"'},
        }
        answers["/subjects/t-value/versions/latest"] = answers["/subjects/t-value/versions/2"]
        if type(self).refusal is not None:
            code, body = type(self).refusal or (0, b"")
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path not in answers:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b'{"error_code":40401,"message":"Subject not found"}')
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answers[self.path]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_versions_are_fetched_once_and_outages_are_waited_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "asked", [])
    monkeypatch.setattr(Registry, "failures", 1)
    registry = HttpRegistry(url)
    first, second = registry.versions("t-value")
    assert (first.id, second.id, first.document) == (11, 12, {"type": "record"})
    with pytest.raises(RegistryError, match="no Avro record"):
        _ = second.document
    registry.versions("t-value")
    assert Registry.asked.count("/subjects/t-value/versions/1") == 1
    assert registry.versions("unknown") == ()


def test_a_404_that_is_not_the_registry_s_own_says_nothing_of_a_subject(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy gives it while the registry restarts: all records would go to quarantine."""
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: None)
    monkeypatch.setattr(Registry, "refusal", (404, b"<html>Not Found</html>"))
    with pytest.raises(
        RegistryUnavailableError, match=r"failed 5 times, last with: this is not a Confluent-compatible registry API at .*HTTP 404"
    ) as caught:
        HttpRegistry(url).versions("t-value")
    assert may_pass(caught.value)


@pytest.mark.parametrize("refusal", [(503, b""), (500, b'{"error_code":50001}'), (429, b""), (408, b""), (200, b"<html>")])
def test_a_registry_that_cannot_answer_now_ends_no_sink(
    refusal: tuple[int, bytes], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: None)
    monkeypatch.setattr(Registry, "refusal", refusal)
    with pytest.raises(RegistryUnavailableError, match="failed 5 times") as caught:
        HttpRegistry(url).versions("t-value")
    assert may_pass(caught.value)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ((404, b'{"error_code":99901,"message":"no such path"}'), NoRegistryError),
        ((401, b""), RegistryAccessError),
        ((422, b'{"error_code":42201,"message":"invalid"}'), RegistryError),
    ],
)
def test_an_answer_that_no_retry_changes_ends_the_sink(
    refusal: tuple[int, bytes], kind: type[RegistryError], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: None)
    monkeypatch.setattr(Registry, "refusal", refusal)
    with pytest.raises(kind) as caught:
        HttpRegistry(url).versions("t-value")
    assert type(caught.value) is kind
    assert not may_pass(caught.value)


def test_a_registry_that_stays_unreachable_is_a_clear_error_and_ends_no_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: None)
    with pytest.raises(RegistryUnavailableError, match=r"GET http://127\.0\.0\.1:9/subjects/t/versions/latest failed 5 times") as caught:
        HttpRegistry("http://127.0.0.1:9").versions("t")
    assert may_pass(caught.value)
