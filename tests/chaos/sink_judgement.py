"""What the sinks of a round have, against the source: `tidemark verify`, the rows by SQL of our own, and events one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.identity import TableName
from schemas.names import folder_name
from tests.chaos.sink_plans import Feed, SinkPlan
from tests.e2e.child_processes import environment
from tests.support.changelogs import OWN, events_of_files, events_of_topic, folded
from tidemark.verify.sink_reader import SOURCE_COLUMN
from tidemark.verify.sink_types import open_reader

if TYPE_CHECKING:
    from tests.e2e.pipeline import Pipeline
    from tests.e2e.topics import Change

SHOWN: Final = 3
_VERIFY_S: Final = 600
_OP, _POSITION, _SOURCE, _ = OWN
Identity = tuple[str | None, ...]
"""The source table, and the key as texts."""
Rows = Mapping[Identity, Mapping[str, str | None]]


@dataclass(slots=True)
class Judgement:
    """What was found in one target, or in all: rows compared, rows and events that are wrong, and sentences about them."""

    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    out_of_order: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Judgement) -> None:
        """Add what was found in another sink."""
        self.rows += other.rows
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.differing += other.differing
        self.out_of_order += other.out_of_order
        self.wrong += other.wrong

    @property
    def text(self) -> str:
        """All sentences."""
        return "; ".join(self.wrong)


def judged(pipeline: Pipeline, plan: SinkPlan, published: Mapping[str, Sequence[Change]]) -> Judgement:
    """Judge a sink that has everything. `published` are the changes of each table in its topic."""
    found = Judgement()
    if not plan.is_changelog:
        _verify(pipeline, plan.name(pipeline.database), found)
    for feed, schema, table in plan.targets(pipeline.database):
        where = f"{plan.kind}: {schema}.{table}"
        wanted = expected(pipeline, feed)
        if plan.is_changelog:
            events = _events(pipeline, plan, schema, table)
            judge_events(pipeline, feed, events, published, found, where)
            compare_rows(wanted, rows_of_changelog(pipeline, feed, events), found, where)
        else:
            compare_rows(wanted, _of_mirror(pipeline, plan, feed, TableName(schema, table), found), found, where)
    return found


# --- what must be there -----------------------------------------------------------------------------------


def expected(pipeline: Pipeline, feed: Feed) -> dict[Identity, dict[str, str | None]]:
    """Return the rows that a target must have, as the source computes them."""
    found: dict[Identity, dict[str, str | None]] = {}
    with pipeline.connect() as connection, connection.cursor() as cursor:
        for table in feed.tables:
            keys, columns = feed.identity(table), feed.columns(table)
            items = [f"`{key}`" for key in keys.values()] + list(columns.values())
            where = f" WHERE {feed.where}" if feed.where else ""
            cursor.execute(f"SELECT {', '.join(items)} FROM `{table}`{where}")
            for row in cursor.fetchall():
                identity = (source_of(pipeline, table), *map(text_of, row[: len(keys)]))
                found[identity] = dict(zip(columns, map(text_of, row[len(keys) :]), strict=True))
    return found


def source_of(pipeline: Pipeline, table: str) -> str:
    """Return how a sink names a source table."""
    return f"{pipeline.name}:{pipeline.database}.{table}"


def text_of(value: Any) -> str | None:
    """Return a value as a text that is the same for the same value, whichever way it was read."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float | Decimal):
        number = Decimal(str(value))
        return "0" if not number else format(number.normalize(), "f")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def compare_rows(wanted: Rows, found: Rows, judgement: Judgement, where: str) -> None:
    """Note rows that are missing, too many or different."""
    judgement.rows += len(found)
    differing = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
    judgement.differing += len(differing)
    for key in sorted(differing, key=str)[:SHOWN]:
        judgement.wrong.append(f"{where}: {key}: source {wanted.get(key)}, sink {found.get(key)}")
    if differing[SHOWN:]:
        judgement.wrong.append(f"{where}: {len(differing)} rows differ")


# --- mirrors ----------------------------------------------------------------------------------------------


def _verify(pipeline: Pipeline, name: str, judgement: Judgement) -> None:
    """Have `tidemark verify` compare a sink, as a user does."""
    command = [sys.executable, "-m", "tidemark", "verify", "--config", str(pipeline.config_path), "--sink", name, "--output", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_VERIFY_S, check=False, cwd=pipeline.folder, env=environment()
    )  # fmt: skip
    if done.returncode == 0:
        return
    try:
        tables = json.loads(done.stdout)["tables"]
    except ValueError:
        judgement.wrong.append(f"verify of {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return
    for table in tables:
        judgement.differing += table["differing"]
        if not table["ok"]:
            shown = json.dumps(table["differences"][:SHOWN])
            judgement.wrong.append(f"verify: {name}: {table['table']}: {table['not_compared'] or 'differs'} {shown}")


def _of_mirror(pipeline: Pipeline, plan: SinkPlan, feed: Feed, target: TableName, judgement: Judgement) -> Rows:
    """Return the rows of a target, without those that are kept though they are deleted at the source."""
    found: dict[Identity, dict[str, str | None]] = {}
    reader = open_reader(pipeline.settings.of_sink(plan.name(pipeline.database)))
    is_shared = len(feed.tables) > 1
    keys, columns = list(feed.identity(feed.tables[0])), list(feed.columns(feed.tables[0]))
    kept = [feed.soft_delete] if feed.soft_delete else []
    rows = reader.rows(target)
    rows.kept = feed.soft_delete or None
    for batch in rows.read(list(dict.fromkeys([*keys, *columns, *kept, *([SOURCE_COLUMN] if is_shared else [])]))):
        for row in batch.to_pylist():
            source = row[SOURCE_COLUMN] if is_shared else source_of(pipeline, feed.tables[0])
            identity = (source, *(text_of(row[name]) for name in keys))
            judgement.duplicated += identity in found
            if identity in found:
                judgement.wrong.append(f"{plan.kind}: {target.plain}: {identity} is there twice")
            found[identity] = {name: text_of(row[name]) for name in columns}
    return found


# --- changelogs -------------------------------------------------------------------------------------------


def _events(pipeline: Pipeline, plan: SinkPlan, schema: str, table: str) -> list[dict[str, Any]]:
    if plan.kind == "kafka":
        return events_of_topic(pipeline.kafka.bootstrap_servers, plan.topic(pipeline.database, table))
    folder = Path(pipeline.settings.of_sink(plan.name(pipeline.database)).sink.path)
    return events_of_files(folder / folder_name(schema) / folder_name(table))


def rows_of_changelog(pipeline: Pipeline, feed: Feed, events: Sequence[Mapping[str, Any]]) -> Rows:
    """Return the rows that a changelog says are there."""
    keys, columns = list(feed.identity(feed.tables[0])), list(feed.columns(feed.tables[0]))
    return {
        (key[0], *map(text_of, key[1:])): {name: text_of(row.get(name)) for name in columns}
        for key, row in folded([_complete(event, keys) for event in events], keys).items()
    }


def _complete(event: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    """Return an event with all columns of the key, which one about many rows does not have."""
    return {**dict.fromkeys(keys), **event}


def judge_events(
    pipeline: Pipeline,
    feed: Feed,
    events: Sequence[Mapping[str, Any]],
    published: Mapping[str, Sequence[Change]],
    judgement: Judgement,
    where: str,
) -> None:
    """Note events that are there twice, changes that are not there, and such that should not be there."""
    keys = list(feed.identity(feed.tables[0]))
    counts = Counter((one[_OP], one[_POSITION], one[_SOURCE], *(str(one.get(key)) for key in keys)) for one in events if one[_OP] != "sweep")
    twice = {event: count for event, count in counts.items() if count > 1}
    judgement.duplicated += sum(count - 1 for count in twice.values())
    judgement.wrong += [f"{where}: {count} times {event}" for event, count in list(twice.items())[:SHOWN]]
    for table in feed.tables:
        source = source_of(pipeline, table)
        own = [one for one in events if one[_SOURCE] == source]
        floor = max((one[_POSITION] for one in own if one[_OP] == "floor"), default="")
        had = {one[_POSITION] for one in own}
        wanted: dict[str, bool] = {}
        for one in published[table]:  # an update of the key is a delete and a create of one position
            matches = any(row is not None and feed.matches(row) for row in (one.before, one.after))
            wanted[one.position] = matches or wanted.get(one.position, False)
        missing = [position for position, is_wanted in wanted.items() if is_wanted and position not in had and position > floor]
        surplus = [position for position, is_wanted in wanted.items() if not is_wanted and position in had]
        judgement.lost += len(missing)
        judgement.differing += len(surplus)
        judgement.wrong += [f"{where}: no event of {table} at {position}" for position in missing[:SHOWN]]
        judgement.wrong += [f"{where}: an event of {table} at {position}, which no rule asks for" for position in surplus[:SHOWN]]

