"""`tidemark plan`: what routes and transforms make of the tables that the source has now. Nothing is written anywhere."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from schemas.identity import SourceId, SourceTable
from tidemark.commands.merge import with_java
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.settings import Settings
    from spark_jobs.decode.table_layout import TableLayout
    from spark_jobs.pipeline.preview import PlannedTarget

HELP: Final = "show which table goes into which target, with identity, columns and types; nothing is written"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which sink, and the form."""
    parser.add_argument("--sink", metavar="NAME", help="only this sink (default: each)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of what is printed")


def execute(arguments: argparse.Namespace) -> int:
    """Print the plan of each sink; exit code 2 if some target of it cannot be made."""
    settings = config.load(arguments.config)
    chosen = settings.of_sink(arguments.sink) if arguments.sink or not settings.sinks else settings
    names = [sink.name for sink in chosen.sinks]
    with_jars = with_java(settings)
    from spark_jobs.jobs.session import build_session
    from spark_jobs.pipeline.preview import planned_targets
    from spark_jobs.pipeline.table_routes import Routes
    from spark_jobs.pipeline.udfs import register_udfs

    layouts = dict(_layouts(settings))
    spark = build_session(with_jars.spark, settings.name)
    try:
        register_udfs(spark, settings.udfs)
        plans = {name: list(planned_targets(spark, Routes.of(name, settings.of_sink(name).sink), layouts)) for name in names}
    finally:
        spark.stop()
    print(as_json(plans) if arguments.output == "json" else as_text(plans))
    return 2 if any(target.problem for targets in plans.values() for target in targets) else 0


def _layouts(settings: Settings) -> Iterator[tuple[SourceTable, TableLayout | None]]:
    """Yield the captured tables of the source with their layouts, None for a table without a key."""
    from producer.kafka.codecs import schema_texts
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
    yield f"    columns:  {', '.join(f'{name} {kind}' for name, kind in target.columns)}"
    for table, condition in (target.where or {}).items():
        yield f"    where:    {condition}  ({table})"
