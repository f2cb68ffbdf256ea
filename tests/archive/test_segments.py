"""Segments and manifest: committed changes are read, after a death at any step; damage is never a wrong record."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError, DecodeError, SinkError
from schemas.settings.task_section import TaskTarget
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.archive.segments import ROW, SCHEMA, STATEMENT, ArchivedRecord, SegmentReader, segment_file
from spark_jobs.replicate.apply.apply_target import SourceState
from spark_jobs.replicate.apply.archiver import FileTarget

POSITIONS = st.integers(0, 99).map(lambda number: f"0000.0000000001.{number:012d}.0000000001")
RECORDS = st.builds(
    ArchivedRecord, st.sampled_from([ROW, STATEMENT]), st.integers(-(1 << 62), 1 << 62), POSITIONS, st.binary(max_size=9),
    st.binary(max_size=3000),
)  # fmt: skip
TRANSACTIONS = st.lists(st.lists(RECORDS, max_size=6), max_size=6)


class Died(BaseException):
    """The process is gone."""


def archive_of(folder: Path, now: list[float] | None = None, **more: object) -> FileTarget:
    target = TaskTarget(type="file", path=str(folder), **more)
    archive = FileTarget(target, "keep", clock=(lambda: now[0]) if now else (lambda: 1e9), lock_wait_s=0)
    archive.require_usable("", "")
    archive.take_over()
    return archive


def commit(archive: FileTarget, records: list[ArchivedRecord], n: int) -> None:
    with archive.transaction():
        for record in records:
            if record.kind == ROW:
                archive.append_row(record, len(record.value) % 3, str)
            else:
                archive.append(record)
        archive.put_state("shop", SourceState(offset=n, n=n, loading=()))


def readers(folder: Path, **more: bool) -> list[SegmentReader]:
    manifest = ArchiveManifest.read(folder)
    assert manifest is not None
    numbers = range(manifest.first, manifest.open.number + bool(manifest.size))
    sizes = {manifest.open.number: manifest.size}
    return [SegmentReader(segment_file(folder, number), number, sizes.get(number), **more) for number in numbers]


def changes(folder: Path, **more: bool) -> list[ArchivedRecord]:
    return [record for reader in readers(folder, **more) for _, record in reader.records() if record.kind in (ROW, STATEMENT)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TRANSACTIONS, st.sampled_from([1 << 10, 1 << 12, 1 << 20]))
def test_changes_are_read_as_they_were_written_and_each_segment_has_its_schemas(tmp_path, transactions, segment_bytes):
    folder = tmp_path / "round"
    shutil.rmtree(folder, ignore_errors=True)
    for number, records in enumerate(transactions):
        archive = archive_of(folder, segment_bytes=segment_bytes)
        commit(archive, records, number)
        archive.close()
        assert archive.epoch == 0
    if not transactions:
        return
    assert changes(folder) == [record for records in transactions for record in records]
    for reader in readers(folder):
        schemas = set()
        for _, record in reader.records():
            if record.kind == SCHEMA:
                schemas.add(record.value[0])
            if record.kind == ROW:
                assert len(record.value) % 3 in schemas


@pytest.mark.parametrize("step", ["fsync", "replace", "truncate", "unlink"])
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_death_at_any_step_leaves_whole_transactions_with_their_state(folder, monkeypatch, step, is_behind):
    """Each attempt dies at a later call, until one passes; then the next transaction begins."""
    dice, now, written = random.Random(step), [0.0], []
    owner, name = (Path, step) if step in {"replace", "unlink"} else (os, step)
    original = getattr(owner, name)
    passes, calls, deaths = [10**9], [0], 0

    def dying(*arguments, **named):
        calls[0] += 1
        dies = calls[0] > passes[0]
        if dies and not is_behind:
            raise Died
        result = original(*arguments, **named)
        if dies:
            raise Died
        return result

    monkeypatch.setattr(owner, name, dying)
    for number in range(1, 13):
        records = [ArchivedRecord(ROW, number, f"{number:039d}", b"", dice.randbytes(300)) for _ in range(3)]
        for attempt in range(50):
            now[0] += 1000.0
            calls[0], passes[0] = 0, attempt
            archive = FileTarget(
                TaskTarget(type="file", path=str(folder), segment_bytes=1500, retention_hours=2), "keep", lambda: now[0], 0
            )
            archive.require_usable("", "")
            archive.take_over()
            try:
                state = archive.states().get("shop")
                if state is None or state.n < number:
                    commit(archive, records, number)
                break
            except Died:
                deaths += 1
            finally:
                archive.close()
        written += records
        calls[0], passes[0] = 0, 10**9
        kept = changes(folder)
        assert kept == written[len(written) - len(kept) :]
        assert kept[-3:] == records
    assert deaths >= 3
    assert len(kept) < len(written), "retention has removed some"


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_reported_with_its_offset_and_never_read_as_a_record(folder, seed):
    dice = random.Random(seed)
    archive = archive_of(folder, segment_bytes=4096)
    written = []
    for number in range(8):
        inner = segment_file(folder, 1).read_bytes()[:1500] if number else b""  # copies of records in a value
        values = [dice.randbytes(dice.randrange(400)), inner]
        records = [ArchivedRecord(ROW, number, f"{number:039d}", b"", value) for value in values]
        commit(archive, records, number)
        written += records
    archive.close()
    for _ in range(20):
        copy = folder.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        file = dice.choice(sorted(copy.glob("*.segment")))
        data = bytearray(file.read_bytes())
        if dice.random() < 0.3:
            del data[dice.randrange(len(data)) :]
        else:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(data)
        rest = iter(written)
        assert all(any(record == one for one in rest) for record in changes(copy, skips_damage=True))
        is_whole = False
        try:
            is_whole = changes(copy) == written
        except DecodeError as error:
            assert str(error).startswith(f"{file}, offset ")  # noqa: PT017 - there may be none, in the bytes behind the footer
        skipping = readers(copy, skips_damage=True)
        assert sum(len(list(reader.records())) for reader in skipping) <= sum(len(list(r.records())) for r in readers(folder))
        assert is_whole or sum(reader.damages for reader in skipping)


def test_a_second_process_and_another_task_are_refused(folder):
    archive = archive_of(folder)
    commit(archive, [], 1)
    with pytest.raises(SinkError, match="another process writes to"):
        archive_of(folder)
    archive.close()
    with pytest.raises(ConfigError, match="has the files of task keep"):
        FileTarget(TaskTarget(type="file", path=str(folder)), "other", lock_wait_s=0).take_over()


def test_a_damaged_manifest_and_lost_bytes_are_refused(folder):
    archive = archive_of(folder)
    commit(archive, [ArchivedRecord(ROW, 1, "1", b"", b"abc")], 1)
    archive.close()
    file = segment_file(folder, 1)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    archive = archive_of(folder)
    with pytest.raises(SinkError, match=r"bytes of the \d+ that the manifest counts"):
        archive.states()
    archive.close()
    file.write_bytes(whole + b"not committed")
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"size": ', b'"size": 1'))
    with pytest.raises(DecodeError, match="is damaged"):
        archive_of(folder)
    manifest.unlink()
    (folder / "lock").unlink()
    archive = archive_of(folder)
    with pytest.raises(SinkError, match=r"segments and no manifest\.json"):
        archive.states()
    archive.close()


def test_a_segment_is_closed_by_time(folder):
    now = [100.0]
    archive = archive_of(folder, now, segment_s=60)
    for number in range(4):
        commit(archive, [ArchivedRecord(ROW, number, f"{number}", b"", b"")], number)
        now[0] += 40
    archive.close()
    facts = [reader.facts() for reader in readers(folder)[:-1]]
    assert [(one.records, one.first, one.last, one.first_us) for one in facts if one] == [(3, "0", "2", 0)]
