"""`tidemark offsets`: the committed log offset, and what a restart of the producer reads."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from schemas.documents import OffsetDocument
from schemas.readable import moment
from tidemark.commands.action import Action, add_output, emit
from tidemark.process import config

if TYPE_CHECKING:
    from tidemark.api.source_log import SourceLog

HELP: Final = "show the committed log offset (file, position, GTIDs), and what a restart of the producer reads"


def _show(arguments: argparse.Namespace) -> int:
    """Print the offset; 1 before the first start, when there is none."""
    settings = config.load(arguments.config)
    from tidemark.api.observe import Observer
    from tidemark.api.source_log import source_of

    with Observer(settings) as observer:
        offset = observer.state().one(OffsetDocument)
        source = None if offset is None else source_of(settings, next(iter(observer.read_each().values())))
    if offset is None or source is None:
        text = f"no offset is committed under the name {settings.name}: `tidemark run` was never started, or has not read anything"
        emit(arguments, {"offset": None}, text)
        return 1
    now_ms = time.time_ns() // 1_000_000
    emit(arguments, as_document(offset, source, now_ms), as_text(offset, source))
    return 0


def as_document(offset: OffsetDocument, source: SourceLog, now_ms: int) -> dict[str, Any]:
    """Return the offset in JSON; `source` is null where the source could not be asked."""
    start, room = offset.resume or offset, source.room
    return {
        "read_ms": now_ms,
        "offset": {
            "epoch": offset.epoch,
            "file": offset.file,
            "pos": offset.pos,
            "gtid_set": offset.gtid_set or None,
            "server": offset.server,
            "position": offset.boundary.text,
            "committed_ms": offset.committed_ms,
            "inherited_gtids": offset.inherited or None,
        },
        "restart": {
            "file": start.file,
            "pos": start.pos,
            "gtid_set": start.gtid_set or None,
            "because_of_prepared_xa": offset.resume is not None,
            "skips_rows": 0 if offset.part is None else offset.part.rows,
        },
        "source": room
        and {
            "oldest_file": room.oldest_file,
            "newest_file": room.newest_file,
            "unread_bytes": room.behind_bytes,
            "keeps_s": room.keeps_s,
            "head_room_s": room.left_s,
        },
        "problem": source.problem or None,
    }


def as_text(offset: OffsetDocument, source: SourceLog) -> str:
    """Return a line for each fact."""
    start = offset.resume or offset
    lines = [
        f"committed:    {offset.file}:{offset.pos}, at {moment(offset.committed_ms)}: everything before it is in Kafka",
        f"position:     {offset.boundary.text}, epoch {offset.epoch}",
        f"GTIDs:        {offset.gtid_set or 'none'}",
        f"server:       {offset.server}",
        f"a restart:    reads from {start.file}:{start.pos} on",
    ]
    if offset.resume is not None:
        lines.append("              because XA transactions that were prepared there are not ended; nothing is written twice")
    if offset.part is not None:
        lines.append(f"              and skips {offset.part.rows:,} rows of the first transaction, which are in Kafka")
    if offset.inherited:
        lines.append(f"              and skips transactions that were published from another server: {offset.inherited}")
    return "\n".join([*lines, *_source_lines(source)])


def _source_lines(source: SourceLog) -> list[str]:
    room = source.room
    if room is None:
        return [f"source:       {source.problem or 'was not asked'}"]
    unread = "unknown how many" if room.behind_bytes is None else f"{room.behind_bytes:,}"
    lines = [f"source:       has {room.oldest_file} to {room.newest_file}, {unread} bytes of them after that"]
    if room.left_s is not None:
        lines.append(f"              and keeps what a restart reads for at least {room.left_s / 3600:.1f} h")
    return [*lines, *([f"problem:      {source.problem}"] if source.problem else [])]


ACTIONS: Final[dict[str, Action]] = {
    "show": Action("show the committed offset, and what a restart of the producer reads", add_output, _show),
}
