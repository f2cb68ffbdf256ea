"""The log of a Delta table, read as files: who made its commits, and whether the table is the one that this query left.

Each commit of ours carries a stamp (`stamp.Stamp`) as its userMetadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from schemas.errors import SinkError
from spark_jobs.sinks.contract import REMEDY

_LOG: Final = "_delta_log"
_OF_PROPERTIES: Final = "SET TBLPROPERTIES"
"""A commit that comes before another one of the same step, if it comes."""


def table_exists(path: Path) -> bool:
    """Return whether there is a Delta table: a first write that was cut off leaves a log folder without a commit."""
    log = path / _LOG
    return any(log.glob("*.json")) or any(log.glob("*.checkpoint*.parquet"))


def require_own_table(path: Path, query_id: str, last_commit: int, batch_id: int) -> int:
    """Return the version of a table; `SinkError` if another query has written it, or if it was put back or forward.

    Commits of others (OPTIMIZE, a person) are looked through, unless they put back or replaced the whole table; of ours
    only the newest counts.
    """
    redriven, commits = False, _newest_first(path)
    for commit in commits:
        stamp = _stamp(path, commit)
        if stamp is None:
            continue
        if stamp["query_id"] == query_id and "redrive" in stamp:  # between two batches
            redriven = True
            continue
        if stamp["query_id"] != query_id or stamp["batch_id"] not in (last_commit, batch_id):
            message = (
                f"table {path} was last written by batch {stamp['batch_id']} of query {stamp['query_id']}; "
                f"query {query_id}, now at batch {batch_id}, wrote to it in batch {last_commit}: {REMEDY}"
            )
            raise SinkError(message)
        return int(commit.stem)
    if last_commit < 0 and not redriven:
        message = (
            f"there is a table at {path} that no merge job has written: move it away, or change sinks.path"
        )
        raise SinkError(message)
    if not redriven and _version_file(path, 0).exists():  # the whole log is there, and nothing of ours in it
        message = f"the table {path} is not the one this merge job wrote to in batch {last_commit}: {REMEDY}"
        raise SinkError(message)
    return int(commits[0].stem) if commits else -1


def was_written_by(path: Path, query_id: str, batch_id: int) -> bool:
    """Return whether the newest of our commits in a table is of this batch."""
    for stamp, _ in _ours(path):
        return (stamp["query_id"], stamp["batch_id"]) == (query_id, batch_id) and "redrive" not in stamp
    return False


def is_of_query(path: Path, query_id: str) -> bool:
    """Return whether this query made the newest commit of a merge job; `SinkError` if others replaced the table since."""
    return next((stamp["query_id"] == query_id for stamp, _ in _ours(path)), False)


def newest_change(path: Path) -> Mapping[str, Any] | None:
    """Return the stamp of the newest commit of a merge job that changed rows or columns; None where there is none.

    `SinkError` if somebody else put the table back, or replaced it, after that commit.
    """
    return next((stamp for stamp, operation in _ours(path) if operation != _OF_PROPERTIES), None)


def require_nothing_put_back(path: Path, query_id: str, version: int) -> int:
    """Return the version of a table now; `SinkError` if others put it back, or replaced it, since a version that was ours.

    For a running job: asks for the newest commits only.
    """
    while (commit := _version_file(path, version + 1)).exists():
        stamp = _stamp(path, commit)
        if stamp is not None and stamp["query_id"] != query_id:
            message = f"table {path} was written by query {stamp['query_id']} beside this one: {REMEDY}"
            raise SinkError(message)
        version += 1
    return version


def is_commit_of(path: Path, version: int, query_id: str, batch_id: int) -> bool:
    """Return whether a batch made the commit of a version. One that changes no row may make none."""
    commit = _version_file(path, version)
    stamp = _stamp(path, commit) if commit.exists() else None
    return stamp is not None and (stamp["query_id"], stamp["batch_id"]) == (query_id, batch_id) and "redrive" not in stamp


def newest_version(path: Path, version: int) -> int:
    """Return the newest version of a table that had this one."""
    while _version_file(path, version + 1).exists():
        version += 1
    return version


def has_version(path: Path, version: int) -> bool:
    """Return whether the log of a table has the commit of a version."""
    return _version_file(path, version).exists()


def _version_file(path: Path, version: int) -> Path:
    return path / _LOG / f"{version:020}.json"


def _newest_first(path: Path) -> list[Path]:
    """Return the commits that the log of a table has."""
    return sorted((item for item in (path / _LOG).glob("[0-9]*.json") if item.stem.isdigit()), reverse=True)


def _ours(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the stamps of our commits in a table, the newest first, each with the operation. `SinkError` as `_read` raises it."""
    for commit in _newest_first(path):
        stamp, operation = _read(path, commit)
        if stamp is not None:
            yield stamp, operation


def _stamp(path: Path, commit: Path) -> dict[str, Any] | None:
    """Return our stamp in a commit of a Delta table; None if somebody else made the commit."""
    return _read(path, commit)[0]


def _read(path: Path, commit: Path) -> tuple[dict[str, Any] | None, str]:
    """Return our stamp in a commit of a Delta table, None if somebody else made the commit, and the operation.

    `SinkError` if somebody else put the whole table back, or replaced it.
    """
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip()]
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
            stamp = _parsed(info.get("userMetadata"))
            if stamp is None and _replaces(info, actions):
                message = f"{info['operation']} replaced the table {path} (version {int(commit.stem)}): {REMEDY}"
                raise SinkError(message)
            return stamp, str(info.get("operation", ""))
    return None, ""


def _replaces(info: Mapping[str, Any], actions: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether an operation replaces the table by another one.

    An overwrite that says of each of its files that it changes no data only arranges the rows in other files.
    """
    operation = str(info.get("operation", "")).upper()
    mode = str(info.get("operationParameters", {}).get("mode", "")).upper()
    if operation == "WRITE" and mode == "OVERWRITE":
        files = [action.get("add") or action.get("remove") for action in actions]
        changes = [item.get("dataChange", True) for item in files if item]
        return not changes or any(changes)
    return operation in ("RESTORE", "CLONE") or "REPLACE TABLE" in operation


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    return document if isinstance(document, dict) and "tidemark" in document else None
