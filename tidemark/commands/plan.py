"""`tidemark plan`: what routes and transforms make of the tables that the source has now. Nothing is written anywhere."""

from __future__ import annotations

import argparse
import json
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.identity import SourceId, SourceTable
from tidemark.commands.action import add_output, add_sink
from tidemark.commands.merge import with_java
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from schemas.settings import Settings
    from spark_jobs.decode.table_layout import TableLayout
    from spark_jobs.pipeline.preview import PlannedTarget

HELP: Final = "show which table goes into which target, with identity, columns and types; nothing is written"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which sink, and the form."""
    add_sink(parser)
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the plan of each sink. `ConfigError`, with all reasons, if some target of it cannot be made."""
    settings = config.load(arguments.config)
    chosen = settings.of_sink(arguments.sink) if arguments.sink or not settings.sinks else settings
    names = [sink.name for sink in chosen.sinks]
    from spark_jobs.pipeline.preview import planned_targets
    from spark_jobs.pipeline.table_routes import Routes
    from spark_jobs.pipeline.udfs import register_udfs

    layouts = dict(_layouts(settings))
    plans: dict[str, list[PlannedTarget]] = {}
    with _session(settings) as spark:
        register_udfs(spark, settings.udfs)
        for name in names:
            sink = settings.of_sink(name).sink
            routes = Routes.of(name, sink).refusing(partial(settings.comes_round, sink))
            plans[name] = list(planned_targets(spark, routes, layouts))
    print(as_json(plans) if arguments.output == "json" else as_text(plans))
    problems = [f"{one.name or ', '.join(one.tables)}: {one.problem}" for found in plans.values() for one in found if one.problem]
    if problems:
        raise ConfigError("; ".join(problems))
    return 0


@contextmanager
def _session(settings: Settings) -> Iterator[SparkSession]:
    """Give a session: a new one of the Spark that this process has, else one that ends with the block."""
    from spark_jobs.jobs.session import build_session, running_session

    running = running_session()
    if running is not None:
        yield running
        return
    spark = build_session(with_java(settings).spark, f"plan {settings.name}")
    try:
        yield spark
    finally:
        spark.stop()


def _layouts(settings: Settings) -> Iterator[tuple[SourceTable, TableLayout | None]]:
    """Yield the captured tables of the source with their layouts, None for a table without a key."""
    from rowcodec.codec_factory import schema_texts
    from spark_jobs.pipeline.preview import layout_of_schemas
    from tidemark.verify.source import Source

    with closing(Source(settings.source)) as source:
        for database, name in source.table_names():
            key, value = schema_texts(source.table(database, name).schema, settings)
            yield SourceTable.of(SourceId(settings.name), database, name), None if key is None else layout_of_schemas(key, value)


def as_json(plans: Mapping[str, Sequence[PlannedTarget]]) -> str:
    """Return the plans as a JSON document: targets by sink."""
    return json.dumps({name: [asdict(target) for target in targets] for name, targets in plans.items()}, indent=2)


def as_text(plans: Mapping[str, Sequence[PlannedTarget]]) -> str:
    """Return the plans as people read them."""
    lines: list[str] = []
    for name, targets in plans.items():
        tables = {table for target in targets for table in target.tables}
        lines.append(f"{name}: {len(tables)} tables into {len(targets)} targets")
        for target in targets:
            lines += _lines_of(target)
    return "\n".join(lines)


def _lines_of(target: PlannedTarget) -> Iterator[str]:
    sources = ", ".join(target.tables)
    if target.problem is not None:
        yield f"  {sources} → {target.name or '?'}: {target.problem}"
        return
    yield f"  {sources} → {target.name}"
    yield f"    identity: {', '.join(target.identity)}"
    if target.key:
        yield f"    key:      {', '.join(target.key)}{'' if target.is_primary else '  (an index: the identity is not in it)'}"
    yield f"    columns:  {', '.join(f'{name} {kind}' for name, kind in target.columns)}"
    for table, condition in (target.where or {}).items():
        yield f"    where:    {condition}  ({table})"
