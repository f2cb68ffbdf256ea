"""What the job remembers from batch to batch, and what it tells the world.

`StateStore` keeps one file per batch, written before the batch ends. A batch that is run again after a
crash starts from the file of the batch before it, so running it again changes nothing. `progress.json` is
for people and tools; the job reads of it only which query it belongs to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from schemas.errors import SinkError
from schemas.merge_rule import Gap, TableState
from spark_jobs.merge.tombstones import TombstoneFolder

LEFT_OUT: Final = (
    "records of it could not be merged: it lacks them until they are (tidemark quarantine retry), or until a snapshot that "
    "begins after them is merged whole (tidemark signal execute-snapshot)"
)
GIVEN_UP: Final = (
    "records of it were not merged and are not kept: it lacks them until it is read again (tidemark signal execute-snapshot)"
)
_KEPT_BATCHES: Final = 20
_VERSION: Final = 1
_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class SetAside:
    """Why a table is not merged for now: since when, after how many attempts, and when it is retried at the latest.

    `begins_again` is set where a topic of it was deleted and created again: what its markers promise of changes that were
    not read does not count.
    """

    reason: str
    since_ms: int
    attempts: int
    retry_ms: int
    begins_again: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> SetAside:
        """Out of its JSON form."""
        return SetAside(
            document["reason"], document["since_ms"], document["attempts"], document["retry_ms"], document["begins_again"]
        )


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What is remembered of one table.

    `merged` counts the records that were the newest of their key in their batch; `last_commit` is the last
    batch that wrote to the table (-1: none); `skipped` says why a table isn't merged at all. `key_range`
    spans all values that the first key column, if it is an integer, ever had, while the key was `range_of`.
    `writes` counts the batches that wrote to the table since its small files were last made into large ones.
    `keyed_by` is the key schema's id of the newest record, and the record's position, of a table that had several.
    `written_by` is the same of value schemas. `retired` are the schemas whose column types no longer count: all their records
    are below the floor; `retype` says that no record above it has come yet, whose types the columns might take.
    `trimmed` and `known_from` are of a table whose beginning Kafka no longer had (`beginning`): where its change topic began,
    and per partition of the snapshot topic the first marker behind which all is there. `lost` names what the registry should have
    of the table, and has not. `anew` says that the change topic was created again: it has not all that was read.
    """

    state: TableState = field(default_factory=TableState)
    tombstones: tuple[TombstoneFolder, ...] = ()
    merged: int = 0
    quarantined: int = 0
    last_commit: int = -1
    change_offsets: Mapping[int, int] = field(default_factory=dict)
    snapshot_offsets: Mapping[int, int] = field(default_factory=dict)
    skipped: str | None = None
    key_range: tuple[int, int] | None = None
    range_of: tuple[str, ...] = ()
    writes: int = 0
    keyed_by: tuple[int, str] | None = None
    written_by: tuple[int, str] | None = None
    retired: tuple[int, ...] = ()
    retype: bool = False
    trimmed: Mapping[int, int] | None = None
    known_from: Mapping[int, str] = field(default_factory=dict)
    lost: str | None = None
    set_aside: SetAside | None = None
    incomplete: str | None = None
    anew: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return {
            "state": self.state.to_json(),
            "tombstones": [item.to_json() for item in self.tombstones],
            "merged": self.merged,
            "quarantined": self.quarantined,
            "last_commit": self.last_commit,
            "change_offsets": _offsets_out(self.change_offsets),
            "snapshot_offsets": _offsets_out(self.snapshot_offsets),
            "skipped": self.skipped,
            "key_range": self.key_range,
            "range_of": list(self.range_of),
            "writes": self.writes,
            "keyed_by": list(self.keyed_by) if self.keyed_by else None,
            "written_by": list(self.written_by) if self.written_by else None,
            "retired": list(self.retired),
            "retype": self.retype,
            "trimmed": None if self.trimmed is None else _offsets_out(self.trimmed),
            "known_from": {str(partition): position for partition, position in self.known_from.items()},
            "lost": self.lost,
            "set_aside": None if self.set_aside is None else self.set_aside.to_json(),
            "incomplete": self.incomplete,
            "anew": self.anew,
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TableRecord:
        """A record out of its JSON form."""
        return TableRecord(
            state=_state_in(document),
            tombstones=tuple(TombstoneFolder.from_json(item) for item in document["tombstones"]),
            merged=document["merged"],
            quarantined=document["quarantined"],
            last_commit=document["last_commit"],
            change_offsets=_offsets_in(document["change_offsets"]),
            snapshot_offsets=_offsets_in(document["snapshot_offsets"]),
            skipped=document["skipped"],
            key_range=tuple(document["key_range"]) if document["key_range"] else None,
            range_of=tuple(document.get("range_of", ())),
            writes=document.get("writes", 0),
            keyed_by=tuple(document["keyed_by"]) if document.get("keyed_by") else None,
            written_by=tuple(document["written_by"]) if document.get("written_by") else None,
            retired=tuple(document.get("retired", ())),
            retype=document.get("retype", False),
            trimmed=None if document.get("trimmed") is None else _offsets_in(document["trimmed"]),
            known_from={int(partition): text for partition, text in document.get("known_from", {}).items()},
            lost=document.get("lost"),
            set_aside=SetAside.from_json(document["set_aside"]) if document.get("set_aside") else None,
            incomplete=document.get("incomplete"),
            anew=document.get("anew", False),
        )


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything remembered after a batch. `retired` are tombstone folders that the next batch removes.

    `topics` are the ids of the topics that were read: one that is deleted and made anew has the same name and another id.
    """

    query_id: str
    batch_id: int
    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    retired: tuple[str, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)


class StateStore:
    """The files of the last batches' states. A damaged or missing one is a `SinkError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, query_id: str, batch_id: int) -> JobState:
        """The state after a batch; before the first batch (-1) there is none."""
        if batch_id < 0:
            return JobState(query_id, -1)
        path = self._path(batch_id)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            tables = {name: TableRecord.from_json(record) for name, record in document["tables"].items()}
            retired, topics = tuple(document["retired"]), dict(document.get("topics", {}))
            state = JobState(document["query_id"], document["batch_id"], tables, retired, topics)
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"cannot read the merge job's state of batch {batch_id} in {path}: {error}; {_REMEDY}"
            raise SinkError(message) from error
        if state.query_id != query_id or state.batch_id != batch_id:
            message = f"{path} belongs to batch {state.batch_id} of query {state.query_id}; {_REMEDY}"
            raise SinkError(message)
        return state

    def save(self, state: JobState) -> None:
        """Write the state after a batch, and forget those that no replay can ask for."""
        document = {
            "v": _VERSION,
            "query_id": state.query_id,
            "batch_id": state.batch_id,
            "tables": {name: record.to_json() for name, record in state.tables.items()},
            "retired": list(state.retired),
            "topics": dict(state.topics),
        }
        write_atomically(self._path(state.batch_id), json.dumps(document, separators=(",", ":")))
        self._path(state.batch_id - _KEPT_BATCHES).unlink(missing_ok=True)

    def _path(self, batch_id: int) -> Path:
        return self._folder / f"{batch_id}.json"


_REMEDY: Final = (
    "the sink and its checkpoint no longer fit together. Move the sink's folder away (or give another "
    "sinks.path), start the merge job, and snapshot the tables again"
)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by a rename, durably: a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def progress_document(state: JobState, now_ms: int, *, caught_up: bool) -> dict[str, Any]:
    """The content of progress.json."""
    return {
        "query_id": state.query_id,
        "batch_id": state.batch_id,
        "updated_ms": now_ms,
        "last_batch_full": not caught_up,
        "rows_total": sum(record.merged for record in state.tables.values()),
        "tables": {name: table_progress(record) for name, record in state.tables.items()},
    }


def table_progress(record: TableRecord) -> dict[str, Any]:
    """How far one table is, as progress.json and the table's own commits tell it."""
    state = record.state
    return {
        "rows": record.merged,
        "applied_position": state.applied_position or None,
        "consistent_at": state.consistent_at if state.is_consistent else None,
        "horizon": state.safe_horizon or None,
        "horizons": {str(partition): horizon for partition, horizon in state.guard.items()},
        "floor": state.floor or None,
        "change_offsets": _offsets_out(record.change_offsets),
        "snapshot_offsets": _offsets_out(record.snapshot_offsets),
        "quarantined": record.quarantined,
        "tombstones": sum(item.count for item in record.tombstones),
        "skipped": record.skipped,
        "lacks": record.lost or left_out_text(state),
        "set_aside": None if record.set_aside is None else record.set_aside.to_json(),
        "incomplete": record.incomplete,
    }


def left_out_text(state: TableState) -> str | None:
    """Return what to say of records that were not merged; None where all were."""
    if state.gap is None:
        return None
    return GIVEN_UP if state.gap.given_up else LEFT_OUT


def require_own_sink(checkpoint: Path, progress: Path, states: Path) -> None:
    """Refuse a sink that another checkpoint has written, or one newer than its checkpoint (`SinkError`).

    The newest of the states says it, too: `progress` may have been removed.
    """
    newest = max((int(item.stem) for item in states.glob("[0-9]*.json") if item.stem.isdigit()), default=-1)
    query_id = checkpoint_query_id(checkpoint)
    try:
        known = json.loads(progress.read_text(encoding="utf-8"))
        if query_id != known.get("query_id"):
            message = f"the checkpoint {checkpoint} is not the one this sink was written with; {_REMEDY}"
            raise SinkError(message)
        newest = max(newest, int(known.get("batch_id", -1)))
    except FileNotFoundError:
        pass
    except ValueError as error:
        message = f"{progress} is damaged: {error}; {_REMEDY}"
        raise SinkError(message) from error
    last = newest_batch(checkpoint / "offsets")
    if last < newest:
        message = f"the sink has batch {newest}, its checkpoint {checkpoint} ends at {last}; {_REMEDY}"
        raise SinkError(message)


def checkpoint_query_id(checkpoint: Path) -> str | None:
    """The id Spark gave the query of a checkpoint; None when there is no checkpoint yet."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return None


def newest_batch(folder: Path) -> int:
    """The newest batch that one of a checkpoint's folders (`offsets`, `commits`) has a file of; -1 for none."""
    return max((int(item.name) for item in folder.glob("[0-9]*") if item.name.isdigit()), default=-1)


def require_own_table(path: Path, query_id: str, last_commit: int, batch_id: int) -> int:
    """Refuse a table that another query has written, or that was put back or forward (`SinkError`); its version.

    Commits of others (OPTIMIZE, a person) are looked through, unless they put back or replaced the whole table; of ours
    only the newest counts.
    """
    redriven = False
    commits = sorted((item for item in (path / _LOG).glob("[0-9]*.json") if item.stem.isdigit()), reverse=True)
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
                f"query {query_id}, now at batch {batch_id}, wrote to it in batch {last_commit}: {_REMEDY}"
            )
            raise SinkError(message)
        return int(commit.stem)
    if last_commit < 0 and not redriven:
        message = (
            f"there is a table at {path} that no merge job has written: move it away, or change sinks.path"
        )
        raise SinkError(message)
    if not redriven and _version_file(path, 0).exists():  # the whole log is there, and nothing of ours in it
        message = f"the table {path} is not the one this merge job wrote to in batch {last_commit}: {_REMEDY}"
        raise SinkError(message)
    return int(commits[0].stem) if commits else -1


def was_written_by(path: Path, query_id: str, batch_id: int) -> bool:
    """Whether the newest of our commits in a table is of this batch."""
    commits = sorted((item for item in (path / _LOG).glob("[0-9]*.json") if item.stem.isdigit()), reverse=True)
    for commit in commits:
        stamp = _stamp(path, commit)
        if stamp is not None:
            return (stamp["query_id"], stamp["batch_id"]) == (query_id, batch_id) and "redrive" not in stamp
    return False


def require_nothing_put_back(path: Path, query_id: str, version: int) -> int:
    """Refuse what others did to a table since a version that was ours (`SinkError`); its version now.

    For a running job: asks for the newest commits only.
    """
    while (commit := _version_file(path, version + 1)).exists():
        stamp = _stamp(path, commit)
        if stamp is not None and stamp["query_id"] != query_id:
            message = f"table {path} was written by query {stamp['query_id']} beside this one: {_REMEDY}"
            raise SinkError(message)
        version += 1
    return version


def is_commit_of(path: Path, version: int, query_id: str, batch_id: int) -> bool:
    """Whether a batch made the commit of a version. One that changes no row may make none."""
    commit = _version_file(path, version)
    stamp = _stamp(path, commit) if commit.exists() else None
    return stamp is not None and (stamp["query_id"], stamp["batch_id"]) == (query_id, batch_id) and "redrive" not in stamp


def newest_version(path: Path, version: int) -> int:
    """The newest version of a table that had this one."""
    while _version_file(path, version + 1).exists():
        version += 1
    return version


def has_version(path: Path, version: int) -> bool:
    """Whether a table's log has the commit of a version."""
    return _version_file(path, version).exists()


def _version_file(path: Path, version: int) -> Path:
    return path / _LOG / f"{version:020}.json"


def _stamp(path: Path, commit: Path) -> dict[str, Any] | None:
    """Our stamp in a commit of a Delta table, None when somebody else made it.

    `SinkError` when somebody else put the whole table back, or another in its place.
    """
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip()]
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
            stamp = _parsed(info.get("userMetadata"))
            if stamp is None and _replaces(info, actions):
                message = f"{info['operation']} replaced the table {path} (version {int(commit.stem)}): {_REMEDY}"
                raise SinkError(message)
            return stamp
    return None


def _replaces(info: Mapping[str, Any], actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an operation leaves another table in the place of the one that was there.

    An overwrite that says of each of its files that it changes no data only lays the rows out anew.
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


def _state_in(document: Mapping[str, Any]) -> TableState:
    """The state of a table's record. A version that noted no gaps left records out, too: in quarantine, or of a skipped table."""
    state = TableState.from_json(document["state"])
    if "gap" not in document["state"] and (document["quarantined"] or document["skipped"]):
        return replace(state, gap=Gap(_offsets_in(document["change_offsets"]), given_up=bool(document["skipped"])))
    return state


def _offsets_out(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _offsets_in(document: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in document.items()}
