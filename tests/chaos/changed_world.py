"""The merge job dies inside a batch, and the world is another one when the batch is repeated: rules, schemas, topics, DDL, masks.

A repeat that would mix two worlds must be refused, until the change is taken back or the target is made again: both is done here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient, NewTopic

from schemas.documents import SchemaIdDocument
from schemas.identity import TableName
from schemas.state import partition_of
from schemas.topics import change_topic, snapshot_topic, state_topic, value_subject
from spark_jobs.store.sink_layout import BATCH
from tests.chaos.ddl import change_types
from tests.chaos.hidden_versions import HiddenVersions
from tests.chaos.load import TABLES
from tests.chaos.sink_plans import CHANGELOGS, SCHEMAS, SECRETS
from tests.chaos.world import MERGE, RUN, ChaosError, SupervisedPipeline, World
from tests.support.record_producer import RecordProducer
from tests.support.topics import read_topic
from tidemark.verify.sink_types import open_reader

if TYPE_CHECKING:
    from schemas.settings import SinkSettings
    from tidemark.status.status_tree import Status

_BATCH_PATIENCE_S: Final = 30.0
_VERDICT_S: Final = 300.0
_LATE_REFUSAL_S: Final = 10.0
_MOST_REBUILDS: Final = 6
_REFUSED: Final = re.compile(r'by another rule.*?tidemark rebuild --sink \S+ ([^"\\\n]+)')
_CHANGED_BACK: Final = 0.5
_ALSO: Final = "n % 2 = 0"
_ALONE: Final = ("hot", "wide", "ledger", "pets")
_TOPICS_S: Final = 60.0
_NOTICED_S: Final = 120.0
_SECRETS: Final = 300
MASK: Final = "********"
_HIDDEN: Final = ("pairs", "words", "parts", "ledger", "wide")
"""Tables whose topics may be created again: no other table changes their rows, and no record of them waits in quarantine."""
_BY_HAND_S: Final = 300.0


def kill_in_a_begun_batch(world: World, since_ns: int = 0, patience_s: float = _BATCH_PATIENCE_S) -> None:
    """kill -9 of the merge job while a sink has a batch whose writes have begun, after this time; after a while in any case."""
    services = [Path(sink.service_path) for sink in world.pipeline.settings.sinks]
    deadline = time.monotonic() + patience_s
    while not any(_is_begun(service, since_ns) for service in services) and time.monotonic() < deadline:
        world.pipeline.check()
        time.sleep(0.005)
    time.sleep(world.rng.uniform(0, 1.2))
    world.pipeline.check()
    world.pipeline.kill(MERGE)
    world.kills += 1


def _is_begun(service: Path, since_ns: int = 0) -> bool:
    try:
        begun = int(json.loads((service / BATCH).read_text(encoding="utf-8"))["batch_id"])
        return begun > _newest_done(service) and (service / BATCH).stat().st_mtime_ns > since_ns
    except FileNotFoundError:
        return False


def _newest_done(service: Path) -> int:
    return max((int(file.name) for file in (service / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


# --- rules ------------------------------------------------------------------------------------------------


def change_rules(world: World) -> None:
    """A filter is another one: refused until it is changed back, or the target is made again, and once more for the way back."""
    pipeline = world.pipeline
    sink = world.rng.choice([one for one in pipeline.settings.sinks if one.type not in CHANGELOGS])
    kill_in_a_begun_batch(world)
    changed = _with_other_filter(world, sink)
    if _is_refused(world, sink, changed):
        world.refusals += 1
        if world.rng.random() < _CHANGED_BACK:
            pipeline.configs = {}
            pipeline.start(MERGE)
            return
        with world.load.silence():  # minutes, of which no batch should have all the writes
            _rebuild_until_accepted(world, sink, changed)
    kill_in_a_begun_batch(world)
    with world.load.silence():
        _rebuild_until_accepted(world, sink, None)


def _with_other_filter(world: World, sink: SinkSettings) -> Path:
    """Return a file of settings in which a drawn target of a sink has fewer rows."""
    document = world.pipeline.document()
    section = next(one for one in document["sinks"] if one["name"] == sink.name)
    if not section.get("transforms"):
        section["transforms"] = [{"tables": rf"{world.database}\.{world.rng.choice(_in_the_batch(sink) or _ALONE)}"}]
    transform = world.rng.choice(section["transforms"])
    transform["where"] = f"({transform['where']}) AND {_ALSO}" if transform.get("where") else _ALSO
    path = world.pipeline.folder / "changed-rules.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _in_the_batch(sink: SinkSettings) -> list[str]:
    """Return the tables of `_ALONE` that the batch of a lake has records of."""
    begun = json.loads((Path(sink.service_path) / BATCH).read_text(encoding="utf-8")) if _is_begun(Path(sink.service_path)) else {}
    return sorted({text.rpartition(".")[2] for text in begun.get("targets", {})} & set(_ALONE))


def _is_refused(world: World, sink: SinkSettings, config: Path | None) -> bool:
    """Start the merge job by a file of settings; return whether it refuses a target of a sink, or else ends a batch of it.

    The merge job does not run after a refusal. It may come behind the end of a batch whose writes were all done by the old rules.
    """
    pipeline, service = world.pipeline, Path(sink.service_path)
    pipeline.configs = {MERGE: config} if config is not None else {}
    pipeline.start(MERGE)
    deadline, has_ended_one = time.monotonic() + _VERDICT_S * pipeline.patience, False
    done: int | None = None  # until it has started: the JVM of the job that was killed may still end the checkpoint of a batch
    while time.monotonic() < deadline:
        said = pipeline.said(MERGE)
        if _REFUSED.search(said):
            pipeline.reap(MERGE)
            return True
        if not pipeline.running(MERGE):
            pipeline.check()  # started again where there is an excuse
        if done is None and f'"event": "merge.started", "sink": "{sink.name}"' in said:
            done = _newest_done(service)
        if not has_ended_one and done is not None and _newest_done(service) > done:
            deadline, has_ended_one = time.monotonic() + _LATE_REFUSAL_S * pipeline.patience, True
        time.sleep(0.1)
    if has_ended_one:
        return False
    seconds = _VERDICT_S * pipeline.patience
    raise ChaosError(f"neither a refusal nor a batch in {seconds:.0f} s after other rules:\n{pipeline.log_tail(MERGE)}")


def _rebuild_until_accepted(world: World, sink: SinkSettings, config: Path | None) -> None:
    """Make targets again until the merge job works by these settings; it runs then."""
    pipeline = world.pipeline
    for _ in range(_MOST_REBUILDS):
        if not _is_refused(world, sink, config):
            return
        world.refusals += 1
        found = _REFUSED.search(pipeline.said(MERGE))
        assert found is not None
        _by_hand(world, config, "rebuild", found[1].strip(), "--sink", sink.name, "--yes")
    raise ChaosError(f"refused after {_MOST_REBUILDS} rebuilds:\n{pipeline.log_tail(MERGE)}")


# --- registry, DDL, topics --------------------------------------------------------------------------------


def hide_schemas(world: World) -> None:
    """Registry and state have the first schema of a table only, for one attempt, and all of them for the next.

    The merge job reads the state of the producer: a lake shows what a job does that may not. Other sinks have the registry alone.
    """
    pipeline = world.pipeline
    is_lake = not pipeline.takes
    kill_in_a_begun_batch(world)
    world.serial += 1
    world.execute(
        f"ALTER TABLE hot ADD COLUMN more{world.serial} INT NOT NULL DEFAULT {world.serial}", "UPDATE hot SET n = n + 1 LIMIT 5"
    )
    if is_lake:
        pipeline.wait_for_log()
        pipeline.kill(RUN)
        world.kills += 1
        world.unread = True
    with HiddenVersions(world.servers.registry.url) as hidden, _hidden_in_state(world, ("hot",) if is_lake else ()):
        document = pipeline.document()
        document["format"]["registry"] = hidden.url
        path = pipeline.folder / "old-registry.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")
        pipeline.configs = {MERGE: path}
        began_ns = time.time_ns()
        pipeline.start(MERGE)
        kill_in_a_begun_batch(world, began_ns, _VERDICT_S)
        pipeline.configs = {}
    pipeline.start(MERGE)
    if is_lake:
        pipeline.start(RUN)
        pipeline.wait("the producer", lambda status: bool(status.producer().alive))


@contextmanager
def _hidden_in_state(world: World, tables: Iterable[str]) -> Iterator[None]:
    """Take the schemas of tables out of the producer's state, and put them back."""
    servers, name = world.servers.kafka.bootstrap_servers, world.pipeline.name
    topic = state_topic(name)
    subjects = {value_subject(of(name, world.database, table)) for table in tables for of in (change_topic, snapshot_topic)}
    kept: dict[bytes, bytes | None] = {}
    for record in read_topic(servers, topic, raw=True) if subjects else ():
        key = record.key or b""
        if key.startswith(SchemaIdDocument.PREFIX.encode()) and key.decode().split("/", 2)[2] in subjects:
            kept.pop(key, None)
            kept[key] = record.value
    _write(servers, topic, dict.fromkeys(kept))
    try:
        yield
    finally:
        _write(servers, topic, kept)


def _write(servers: str, topic: str, records: Mapping[bytes, bytes | None]) -> None:
    producer = RecordProducer({"bootstrap.servers": servers})
    for key, value in records.items():
        producer.produce(topic, value, key, partition_of(key.decode()))
    producer.flush(_TOPICS_S)


def read_from_quarantine(world: World) -> None:
    """Merge what an attempt could not read, as a person would do."""
    pipeline = world.pipeline
    pipeline.wait_for_sink(*TABLES, consistent=False)
    if not any(table.quarantined for table in pipeline.status().tables):
        return
    with world.laps("retry"):
        pipeline.stop(MERGE)
        _by_hand(world, None, "merge", "--until-caught-up")
        _by_hand(world, None, "quarantine", "retry")
        pipeline.start(MERGE)


def _by_hand(world: World, config: Path | None, verb: str, *arguments: str) -> None:
    """Run a command that must end well."""
    log = world.pipeline.folder / f"{verb}-by-hand.log"
    child = world.pipeline.spawn_by(config, verb, log, *arguments)
    ended = child.wait(_BY_HAND_S)
    child.kill()
    if not ended or child.status != 0:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise ChaosError(f"{verb} {' '.join(arguments)} ended with {child.status}:\n{said[-3000:]}")


def alter_between_attempts(world: World) -> None:
    """DDL of several kinds before the batch is repeated."""
    kill_in_a_begun_batch(world)
    change_types(world)
    world.serial += 1
    world.execute(f"ALTER TABLE words ADD COLUMN more{world.serial} VARCHAR(20) DEFAULT 'd{world.serial}'")
    world.pause(0, 2)
    world.pipeline.start(MERGE)


def create_topics_again(world: World) -> None:
    """The topics of a table are deleted and created again; the table is read again when each sink's reason asks for it."""
    pipeline, table = world.pipeline, world.rng.choice(_HIDDEN)
    kill_in_a_begun_batch(world)
    pipeline.kill(RUN)
    world.kills += 1
    world.recreated.add(table)
    _create_again(world, [topic(pipeline.name, world.database, table) for topic in (change_topic, snapshot_topic)])
    pipeline.start(RUN, MERGE)
    pipeline.wait("the producer", lambda status: bool(status.producer().alive))

    def asks(sink: str, status: Status) -> bool:
        if table not in pipeline.takes.get(sink, {table}):
            return True
        found = next((one for one in status.tables if one.table == f"{world.database}.{table}"), None)
        return found is not None and found.set_aside is None and "snapshot this table again" in (found.inexact or "")

    with suppress(ChaosError):  # a sink looks at the topics of a table only when it has records of it
        pipeline.wait_each("the sinks to ask for a snapshot", asks, _NOTICED_S)
    pipeline.request_snapshot(re.escape(table))


def _create_again(world: World, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": world.servers.kafka.bootstrap_servers})
    known = admin.list_topics(timeout=_TOPICS_S).topics
    partitions = {name: len(known[name].partitions) for name in names if name in known}
    for gone in admin.delete_topics(list(partitions)).values() if partitions else ():
        gone.result(_TOPICS_S)
    deadline = time.monotonic() + _TOPICS_S
    while partitions.keys() & admin.list_topics(timeout=_TOPICS_S).topics.keys():
        if time.monotonic() > deadline:
            raise ChaosError(f"{', '.join(partitions)} are still there {_TOPICS_S:.0f} s after they were deleted")
        time.sleep(0.1)
    time.sleep(0.5)  # the broker answers before it has forgotten them
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()]).values():
        made.result(_TOPICS_S)


# --- masks ------------------------------------------------------------------------------------------------


def change_masks(world: World) -> None:
    """A column is masked from now on, and its table is read again: no sink may have a word in clear when that is done."""
    pipeline = world.pipeline
    pipeline.sql(*(f"UPDATE {SECRETS} SET word = CONCAT('clear ', id, ' ', {number})" for number in range(3)))
    pipeline.request_snapshot(SECRETS)
    kill_in_a_begun_batch(world)
    pipeline.kill(RUN)
    world.kills += 1
    document = pipeline.document()
    document["records"] = {"column_mask_with_chars": [{"columns": [rf"{world.database}\.{SECRETS}\.word"], "chars": len(MASK)}]}
    path = pipeline.folder / "masked.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    pipeline.config_of_all = path
    pipeline.start(RUN, MERGE)
    pipeline.wait("the producer", lambda status: bool(status.producer().alive))
    pipeline.sql(f"INSERT INTO {SECRETS} SELECT id + 1000, word FROM {SECRETS} WHERE id < 1000")
    pipeline.request_snapshot(SECRETS)
    world.masked = True


def leaked(world: World) -> int:
    """Return how many rows of mirrors have a word in clear."""
    count, database = 0, world.database
    for sink in world.pipeline.settings.sinks:
        if sink.type in CHANGELOGS:
            continue
        reader = open_reader(world.pipeline.settings.of_sink(sink.name))
        schema = f"{SCHEMAS[0]}_{database}" if sink.routes else database
        rows = reader.rows(TableName(schema, SECRETS))
        count += sum(row["word"] != MASK for batch in rows.read(["id", "word"]) for row in batch.to_pylist())
    return count


Fault = Callable[[World], None]
ON_EVERY_SINK: Final[Mapping[str, Fault]] = {"hide schemas": hide_schemas, "alter between attempts": alter_between_attempts}
ON_MIRRORS: Final[Mapping[str, Fault]] = {"change rules": change_rules, "change masks": change_masks}
WITHOUT_CHANGELOGS: Final[Mapping[str, Fault]] = {"create topics again": create_topics_again}
CHANGED: Final[Mapping[str, Fault]] = {**ON_EVERY_SINK, **ON_MIRRORS, **WITHOUT_CHANGELOGS}


def changes_of(kinds: Sequence[str]) -> Iterator[str]:
    """Yield the faults that there are for sinks of these types; without a type for a lake."""
    yield from ON_EVERY_SINK
    if not kinds or set(kinds) - CHANGELOGS:
        yield from ON_MIRRORS
    if not set(kinds) & CHANGELOGS:
        yield from WITHOUT_CHANGELOGS


def add_secrets(pipeline: SupervisedPipeline) -> None:
    """Make the table whose column is masked later, and have it go into each mirror."""
    values = ", ".join(f"({number}, 'clear {number}')" for number in range(_SECRETS))
    pipeline.sql(f"CREATE TABLE {SECRETS} (id INT PRIMARY KEY, word VARCHAR(60))", f"INSERT INTO {SECRETS} VALUES {values}")
    document = pipeline.document()
    for sink in document["sinks"]:
        if sink["type"] not in CHANGELOGS and sink.get("routes"):
            sink["routes"].append({"tables": rf"{pipeline.database}\.{SECRETS}", "into": f"{SCHEMAS[0]}_{pipeline.database}.{SECRETS}"})
            pipeline.takes = {**pipeline.takes, sink["name"]: pipeline.takes[sink["name"]] | {SECRETS}}
    path = pipeline.folder / "with-secrets.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    pipeline.config_of_all = path
