"""A commit counts once the driver sees its files: executors write them, perhaps on a disk that is not shared."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from schemas.errors import SinkError
from schemas.identity import Target
from spark_jobs.merge.rows_file import RowsFile
from spark_jobs.merge.tombstones import TombstoneFolder, require_whole
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.delta.commit_log import require_files, require_files_of_batches, require_transaction
from spark_jobs.sinks.files.files_target import FilesTarget
from spark_jobs.sinks.files.manifest import Manifest, ManifestPart, Manifests
from spark_jobs.sinks.stamp import Stamp

QUERY, BATCH = "q", 7


def table(folder: Path, partitions: list[str] | None = None) -> Path:
    """A table with one commit of ours, with a transaction."""
    path = folder / "lake" / "shop" / "orders"
    path.parent.mkdir(parents=True)
    stamp = Stamp(QUERY, BATCH, "shop.orders", {})
    properties = CommitProperties(custom_metadata={"userMetadata": stamp.metadata}, app_transactions=[Transaction("rows", BATCH)])
    write_deltalake(str(path), pa.table({"id": [1, 2], "part": ["a b%", "c/d"]}), partition_by=partitions, commit_properties=properties)
    return path


def data_files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts]


@pytest.mark.parametrize("partitions", [None, ["part"]])
def test_a_commit_whose_files_are_there_has_arrived(tmp_path: Path, partitions: list[str] | None) -> None:
    path = table(tmp_path, partitions)
    require_files(path, range(3))
    require_files_of_batches(path, QUERY, [BATCH])
    require_transaction(path, "rows", BATCH)


@pytest.mark.parametrize("harm", ["removed", "short"])
def test_a_file_that_is_missing_or_short_is_an_error_of_each_look(tmp_path: Path, harm: str) -> None:
    path = table(tmp_path)
    (file,) = data_files(path)
    content = file.read_bytes()
    file.unlink()
    if harm == "short":
        file.write_bytes(content[:-1])
    with pytest.raises(SinkError, match=r"the driver sees no such file .* do not share this folder"):
        require_files(path, range(3))
    with pytest.raises(SinkError, match="no such file"):
        require_files_of_batches(path, QUERY, [BATCH])
    with pytest.raises(SinkError, match="no such file"):
        require_transaction(path, "rows", BATCH)
    with pytest.raises(SinkError, match=r"no such file .* Then rebuild the target"):
        require_files_of_batches(path, QUERY, [BATCH + 1, BATCH])
    require_files_of_batches(path, QUERY, [BATCH + 1])  # what is of an earlier batch was looked at then


def test_a_file_that_somebody_has_compacted_and_removed_since_has_arrived(tmp_path: Path) -> None:
    path = table(tmp_path)
    (file,) = data_files(path)
    file.unlink()
    remove = {"remove": {"path": file.name, "deletionTimestamp": 1, "dataChange": False}}
    (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(remove), "utf-8")
    require_files(path, range(2))


def test_a_transaction_that_the_driver_does_not_see_is_an_error(tmp_path: Path) -> None:
    path = table(tmp_path)
    with pytest.raises(SinkError, match="the driver sees no commit of it"):
        require_transaction(path, "others", BATCH)
    with pytest.raises(SinkError, match="the driver sees no commit of it"):
        require_transaction(path, "rows", BATCH + 1)


def test_a_deletion_vector_is_found_by_its_name(tmp_path: Path) -> None:
    """The example of Delta's protocol."""
    path = table(tmp_path)
    (file,) = data_files(path)
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40, "cardinality": 6}
    add = {"path": quote(file.name), "size": file.stat().st_size, "deletionVector": vector}
    (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}), "utf-8")
    with pytest.raises(SinkError, match=r"ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61\.bin"):
        require_files(path, [1])
    remove = {"remove": {"path": quote(file.name), "deletionTimestamp": 1, "dataChange": True, "deletionVector": vector}}
    (path / "_delta_log" / f"{2:020}.json").write_text(json.dumps(remove), "utf-8")
    require_files(path, [1])  # the file has another vector since, and VACUUM has removed this one
    (path / "_delta_log" / f"{2:020}.json").unlink()
    (path / "ab").mkdir()
    (path / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin").write_bytes(b"rows")
    require_files(path, [1])


def test_a_manifest_of_a_former_version_that_names_no_file_for_its_events_is_refused(tmp_path: Path) -> None:
    name = Target("lake", '"shop"."orders"')
    target = FilesTarget(None, tmp_path, name, (), QUERY, "parquet")  # type: ignore[arg-type] - it needs no Spark to be trusted
    Manifests(tmp_path).write(Manifest(QUERY, BATCH, "parquet", (ManifestPart("p:shop.orders", 20, ()),)))
    with pytest.raises(SinkError, match=r"has 20 events of p:shop\.orders and no file"):
        target.trust(TargetRecord(last_commit=BATCH), BATCH)


def test_rows_and_tombstones_of_a_worker_are_counted_by_the_driver(tmp_path: Path) -> None:
    rows = RowsFile.new(tmp_path / "rows", ["id"], 1 << 20)
    with pytest.raises(SinkError, match=r"executors have written 3 rows to .*, and the driver sees 0 there"):
        rows.require_arrived(3)
    Path(rows.path).parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), rows.path)
    rows.require_arrived(2)
    with pytest.raises(SinkError, match="the driver sees 2 there"):
        rows.require_arrived(3)
    with pytest.raises(SinkError, match=r"2 tombstones were written .* and 0 are there"):
        require_whole(tmp_path, TombstoneFolder("shop/orders/7", "p", 2, {}))
