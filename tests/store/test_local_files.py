"""The documents of a sink: replaced whole, and never in a folder that is called like a bucket."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.settings import SinkSettings
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import SinkLayout


@pytest.mark.parametrize("path", ["s3a://bucket/lake", "s3://bucket", "hdfs:/lake", "gs://bucket/lake", "abfss://c@a/lake", "dbfs:/lake"])
def test_a_sink_in_an_object_store_is_refused_and_the_error_says_what_to_do(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a path it would be a local folder called `s3a:`, and the bucket would stay empty."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"sinks\.0\.path: [a-z0-9]+: is not supported yet, got .*: give a folder of a local or mounted"):
        SinkLayout.of(SinkSettings(path=path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/data/lake", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("file://localhost/data/lake", "/data/lake"),
        ("file:///data/a%20lake", "/data/a lake"),
        ("FILE:///data/lake", "/data/lake"),
    ],
)
def test_a_folder_is_named_by_a_path_or_by_a_file_uri(path: str, folder: str) -> None:
    layout = SinkLayout.of(SinkSettings(path=path))
    assert layout.sink == Path(folder)
    assert layout.table("my shop", "orders") == Path(folder, "my@0020shop", "orders")


@pytest.mark.parametrize("path", ["file://other-host/data/lake", "file:lake"])
def test_a_file_uri_that_names_no_folder_of_this_machine_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"does not name a folder of this machine"):
        SinkLayout.of(SinkSettings(path=path))


def test_a_relative_path_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SinkLayout.of(SinkSettings(path="lake")).sink == tmp_path / "lake"


def test_a_document_is_read_back_listed_and_removed(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.write("state/7.json", "seven")
    files.write("state/7.json", "again")
    files.write("state/8.json", "eight")
    assert files.read("state/7.json") == "again"
    assert sorted(files.names("state")) == ["7.json", "8.json"]
    assert files.names("nothing") == []
    assert files.location("state/7.json") == str(tmp_path / "state" / "7.json")
    for path in ("state/7.json", "state/7.json", "nothing", "state/8.json/below a file"):
        files.remove(path)
    assert files.names("state") == ["8.json"]
    files.remove("state")
    assert not (tmp_path / "state").exists()
    with pytest.raises(FileNotFoundError):
        files.read("state/8.json")


def test_a_reader_sees_the_old_document_or_the_new_one(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    texts = {letter * 100_000 for letter in "ab"}
    files.write("progress.json", "a" * 100_000)
    done = threading.Event()

    def write() -> None:
        for number in range(50):
            files.write("progress.json", "ab"[number % 2] * 100_000)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(files.read("progress.json"))
    writer.join()
    assert seen <= texts
