"""`tidemark replay`: the changes that a task kept in files, applied to a server, or printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from schemas.errors import ConfigError
from schemas.settings.declaration import check_patterns, compiled
from schemas.settings.task_section import SERVERS, TaskTarget
from tidemark.api.value_text import value_text
from tidemark.commands import numbers
from tidemark.commands.action import json_text
from tidemark.process import config

HELP: Final = "apply the changes in the files of a task to a server, or print them"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which changes, and where they go."""
    bound = "a time (ISO 8601, UTC without an offset), a GTID, or a position"
    parser.add_argument("folder", metavar="DIR", help="target.path of the task")
    parser.add_argument("--from", dest="begin", metavar="X", help=f"begin with the transaction at {bound} (default: the first)")
    parser.add_argument("--to", dest="end", metavar="Y", help="end behind the transaction there (default: the last)")
    parser.add_argument("--dest", choices=("mysql", "print"), default="print", help="a server, or standard output, as JSON lines")
    parser.add_argument(
        "--tables", action="append", default=[], metavar="PATTERN", help="only these: a regular expression; may be repeated"
    )
    parser.add_argument("--skip-damaged", action="store_true", help="pass over damaged records, and count them")
    parser.add_argument("--task", metavar="FILE", help="YAML file of a task: the server is its target")
    parser.add_argument("--host", metavar="NAME", help="host name or address of the server, without --task")
    parser.add_argument("--port", type=numbers.port, default=3306, help="TCP port of the server")
    parser.add_argument("--user", metavar="NAME", default="tidemark", help="user with rights on the tables and on tidemark_meta")
    parser.add_argument("--password-file", metavar="FILE", help="file whose first line is the user's password")


def execute(arguments: argparse.Namespace) -> int:
    """Replay a range; exit code 1 for a damaged record, or if the server refuses a change."""
    check_patterns("--tables", arguments.tables)
    target = _server(arguments) if arguments.dest == "mysql" else None
    from spark_jobs.replicate import replaying

    begin, end = (
        replaying.Bound.parse(text, option) if text is not None else None
        for option, text in (("--from", arguments.begin), ("--to", arguments.end))
    )
    reader = replaying.ArchiveReader(Path(arguments.folder), skips_damage=arguments.skip_damaged)
    if target is None:
        count = 0
        for document in replaying.printed(reader.batches(begin, end), reader.decoder, _follows(arguments.tables)):
            print(json_text(document, default=value_text))
            count += 1
        print(json.dumps({"events": count, "skipped": reader.damages}))
        return 0
    from mysqlio.server_access import ServerAccess

    identity = json.dumps([str(Path(arguments.folder).absolute()), arguments.tables])
    rows = replaying.apply(reader, ServerAccess.of(target), begin, end, _follows(arguments.tables), identity, target.channel)
    print(f"replay: {rows} rows applied, {reader.damages} damaged parts skipped")
    return 0


def _server(arguments: argparse.Namespace) -> TaskTarget:
    if arguments.task is not None:
        target = config.load_task(arguments.task).target
        if target.type not in SERVERS:
            reason = f"the target of {arguments.task} is of type {target.type}; name the file of a task with a server"
            raise ConfigError(f"--task: {reason}")
        return target
    if arguments.host is None:
        raise ConfigError("--dest mysql needs a server: give --task, or --host")
    return TaskTarget(
        type="mysql", host=arguments.host, port=arguments.port, user=arguments.user, password_file=arguments.password_file
    )


def _follows(patterns: list[str]) -> Callable[[str, str], bool]:
    def follows(database: str, table: str) -> bool:
        return not patterns or any(compiled(pattern).fullmatch(f"{database}.{table}") for pattern in patterns)

    return follows
