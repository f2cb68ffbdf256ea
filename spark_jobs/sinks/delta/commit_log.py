"""The log of a Delta table, read as files: who made its commits, and whether the table is the one that this query left.

Each commit of ours carries a stamp (`stamp.Stamp`) as its userMetadata.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from schemas.errors import SinkError
from spark_jobs.sinks.arrival import NOT_SHARED, not_arrived
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.sinks.own_target import newest_own_commit
from spark_jobs.sinks.stamp import is_of_batch, parsed_stamp

_LOG: Final = "_delta_log"
_OF_PROPERTIES: Final = "SET TBLPROPERTIES"
"""A commit that comes before another one of the same step, if it comes."""
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_OF_Z85: Final = str.maketrans(_Z85, _B85)


def table_exists(path: Path) -> bool:
    """Return whether there is a Delta table: a first write that was cut off leaves a log folder without a commit."""
    log = path / _LOG
    return any(log.glob("*.json")) or any(log.glob("*.checkpoint*.parquet"))


def require_own_table(path: Path, query_id: str, last_commit: int, batch_id: int) -> int:
    """Return the version of a table; `SinkError` if another query has written it, or if it was put back or forward.

    Commits of others (OPTIMIZE, a person) are looked through, unless they put back or replaced the whole table.
    """
    commits = _newest_first(path)
    stamped = ((commit, _stamp(path, commit)) for commit in commits)
    own = newest_own_commit(str(path), stamped, (query_id, last_commit, batch_id), lambda: not has_version(path, 0))
    newest = own or next(iter(commits), None)
    return -1 if newest is None else int(newest.stem)


def was_written_by(path: Path, query_id: str, batch_id: int) -> bool:
    """Return whether the newest of our commits in a table is of this batch."""
    return any(is_of_batch(stamp, query_id, batch_id) for stamp, _ in islice(_ours(path), 1))


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
    return commit.exists() and is_of_batch(_stamp(path, commit), query_id, batch_id)


def newest_version(path: Path, version: int) -> int:
    """Return the newest version of a table that had this one."""
    while _version_file(path, version + 1).exists():
        version += 1
    return version


def has_version(path: Path, version: int) -> bool:
    """Return whether the log of a table has the commit of a version."""
    return _version_file(path, version).exists()


def require_files(path: Path, versions: Iterable[int]) -> None:
    """Raise `SinkError` unless the files that these commits name are there, whole.

    Executors write them, and the one who commits believes what they say: on a disk that is not shared the files are elsewhere.
    """
    for version in versions:
        commit = _version_file(path, version)
        if commit.exists():
            _require_files(path, commit)


def require_files_of_batches(path: Path, query_id: str, batches: Collection[int]) -> None:
    """Do so for the newest commits, up to one of none of these batches."""
    for commit in _newest_first(path):
        stamp = _stamp(path, commit)
        if stamp is not None and (stamp["query_id"] != query_id or stamp["batch_id"] not in batches):
            return
        if stamp is not None:
            _require_files(path, commit, ("add",))  # VACUUM may have removed files of changes, which no commit removes


def require_transaction(path: Path, app_id: str, batch_id: int) -> None:
    """Raise `SinkError` unless the log has a transaction of a batch, and the files of its commit are there."""
    for commit in _newest_first(path):
        actions = _actions(commit)
        found = (action["txn"] for action in actions if "txn" in action)
        if any((one["appId"], one["version"]) == (app_id, batch_id) for one in found):
            _require_files(path, commit)
            return
        stamp = _stamp(path, commit)
        if stamp is not None and stamp.get("batch_id", batch_id) < batch_id:
            break
    raise SinkError(f"a worker has written rows of batch {batch_id} into {path}, and the driver sees no commit of it: {NOT_SHARED}")


def _require_files(path: Path, commit: Path, kinds: Sequence[str] = ("add", "cdc")) -> None:
    for rows, file, size in _files_of(path, _actions(commit), kinds):
        if (not file.is_file() or file.stat().st_size != size) and not _is_removed(path, commit, rows):
            raise not_arrived(f"version {int(commit.stem)} of the table {path}", file, size)


def _is_removed(path: Path, commit: Path, file: Path) -> bool:
    """Return whether a later commit has removed a file: somebody may have compacted the table and removed old files since."""
    later = (actions for one in _newest_first(path) if one > commit for actions in _actions(one))
    return any("remove" in action and _file(path, action["remove"]["path"]) == file for action in later)


def _files_of(path: Path, actions: Iterable[Mapping[str, Any]], kinds: Sequence[str]) -> Iterator[tuple[Path, Path, int]]:
    """Yield the files that a commit adds: the file of rows, the same or that of its deletion vector, and the size of this one."""
    for action in actions:
        for kind in kinds:
            if kind in action:
                rows = _file(path, action[kind]["path"])
                yield rows, rows, action[kind]["size"]
        vector = action.get("add", {}).get("deletionVector")
        if vector is not None and vector["storageType"] != "i":
            file = _vector_file(path, vector)
            rows = _file(path, action["add"]["path"])
            yield rows, file, file.stat().st_size if file.is_file() else -1  # one file has many vectors: its size is in no commit


def _file(path: Path, named: str) -> Path:
    found = urlsplit(named)
    return Path(unquote(found.path)) if found.scheme == "file" else path / unquote(named)


def _vector_file(path: Path, vector: Mapping[str, Any]) -> Path:
    """Return the file of a deletion vector: its name is a UUID in base 85 behind a folder (Delta's protocol)."""
    text = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "p":
        return _file(path, text)
    number = uuid.UUID(bytes=base64.b85decode(text[-20:].translate(_OF_Z85)))
    return path / text[:-20] / f"deletion_vector_{number}.bin"


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
    actions = _actions(commit)
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
            stamp = parsed_stamp(info.get("userMetadata"))
            if stamp is None and _replaces(info, actions):
                message = f"{info['operation']} replaced the table {path} (version {int(commit.stem)}): {REMEDY}"
                raise SinkError(message)
            return stamp, str(info.get("operation", ""))
    return None, ""


def _actions(commit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip()]


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
