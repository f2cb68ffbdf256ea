"""Findings that need a world of their own: rights, clocks, full disks, another user; each on real servers where one is involved."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from devservers import Kafka, Postgres, Registry, start_kafka
from schemas.documents import OffsetDocument
from schemas.errors import PublishError
from schemas.findings import Severity
from schemas.json_codec import encode
from schemas.liveness import SIGN_KEY, Sign, machine
from schemas.settings import from_mapping
from schemas.state import partition_of, value_of
from tests.doctor.doctored_site import Site, paste_in_shell, site_of
from tests.support import guarded_kafka
from tests.support.joined_broker import JoinedBroker
from tests.support.record_producer import RecordProducer
from tests.support.servers import own_database
from tests.support.silent import SilentPeer
from tidemark.doctor.examination import AREA_S, examine
from tidemark.doctor.kafka_checks import copy_findings
from tidemark.doctor.kafka_rights import LIMIT
from tidemark.doctor.other_writers import producer_findings

WITHOUT_ROOT: Final = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
ON_A_SMALL_DISK: Final = ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs "$0"; exec "$@"')


@pytest.fixture(scope="module")
def whole(kafka: Kafka, registry: Registry, postgres17: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of(own_database("mysql80", "doctor"), kafka, registry, postgres17, tmp_path_factory.mktemp("doctor")) as site:
        yield site


@pytest.fixture
def site(whole: Site) -> Iterator[Site]:
    before = json.dumps(whole.document)
    yield whole
    whole.patch.undo()
    whole.document = json.loads(before)


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["findings"]]


def examined_within(site: Site, command: Sequence[str], more: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """What the command finds in a process of its own that `command` starts; `more` variables of the environment, None is none."""
    given = {**os.environ, **(more or {})}
    environment = {name: value for name, value in given.items() if value is not None}
    line = [*command, sys.executable, "-m", "tidemark", "doctor", "--config", str(site.write()), "--output", "json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def test_rights_on_topics_groups_and_transactional_ids_are_named_and_granted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["kafka"] = guarded_kafka.section("captain")
    rights = ["kafka.rights.topics", "kafka.rights.group"]
    code, found = site.examined(capsys)
    assert (code, codes(found)) == (1, rights), found
    why = f"the right to transactional ids: {LIMIT} of broker 1 is not known, and without a limit the question would end a producer"
    assert why in found["unchecked"]["kafka"]

    rights.append("kafka.rights.transactional_id")
    administration = guarded_kafka.guarded_kafka().bootstrap_servers
    with guarded_kafka.asking_for_ids("captain"):
        code, found = site.examined(capsys)
        assert (code, codes(found), found["unchecked"]) == (1, rights, {}), found
        for number, finding in enumerate(found["findings"]):
            assert "User:captain" in finding["fix"]
            paste_in_shell(finding["fix"], site.folder, administration)
            deadline = time.monotonic() + 60
            while codes(site.examined(capsys)[1]) != rights[number + 1 :]:  # the broker follows its controller
                assert time.monotonic() < deadline, finding
        assert site.examined(capsys)[1]["unchecked"] == {}


def test_a_user_whom_kafka_refuses_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["kafka"] = guarded_kafka.section("captain", "not it")
    code, found = site.examined(capsys)
    assert (code, codes(found)) == (1, ["kafka.access"])
    assert "not it" not in json.dumps(found)


def test_asking_for_the_rights_takes_nothing_from_a_producer_that_writes(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    producer = RecordProducer({"bootstrap.servers": site.kafka.bootstrap_servers, "transactional.id": f"{site.name}-log"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"{site.name}.state", b"{}", b"nothing")
    _, found = site.examined(capsys)
    assert (codes(found), found["unchecked"]) == ([], {}), "the id was asked for"
    producer.commit_transaction(30)


def test_deleting_windows_needs_the_right_to_delete(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["snapshot"] = {"watermarking_strategy": "insert_delete"}
    assert codes(site.examined(capsys)[1]) == []
    site.sql(f"REVOKE DELETE ON {site.schema}.tidemark_signal FROM {site.account}")
    code, found = site.examined(capsys)
    (finding,) = found["findings"]
    assert (code, finding["code"]) == (1, "source.privilege.signal_table")
    assert "DELETE on the signal table" in finding["evidence"]
    site.paste(finding)
    assert codes(site.examined(capsys)[1]) == []


def test_clocks_that_differ_are_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """The server's own clock cannot be moved: each connection of our user is given another time."""
    site.sql("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() - 60'")
    try:
        code, found = site.examined(capsys)
    finally:
        site.sql("SET GLOBAL init_connect = ''")
    (finding,) = found["findings"]
    assert (code, finding["code"], finding["severity"]) == (0, "source.clock", "warning")
    assert any(f"are {seconds} s apart" in finding["evidence"] for seconds in range(55, 65))
    assert codes(site.examined(capsys)[1]) == []


def test_a_folder_without_rights_is_named_and_mended(site: Site) -> None:
    folder = site.folder / "shelf"
    folder.mkdir(mode=0o555)
    site.document["sinks"][0]["path"] = str(folder / "lake")
    (finding,) = examined_within(site, WITHOUT_ROOT)["findings"]
    assert (finding["code"], finding["fix"]) == ("sink.folder_rights", f"chmod u+rwx {shlex.quote(str(folder))}")
    site.paste(finding)
    assert examined_within(site, WITHOUT_ROOT)["findings"] == []


def test_a_disk_that_is_nearly_full_is_named(site: Site) -> None:
    folder = site.folder / "disk"
    folder.mkdir()
    site.document["sinks"][0]["path"] = str(folder)
    (finding,) = examined_within(site, [*ON_A_SMALL_DISK, str(folder)])["findings"]
    assert (finding["code"], finding["severity"]) == ("sink.free_space", "warning")
    assert "0.1 GiB are free" in finding["evidence"]


def test_a_peer_that_is_silent_costs_one_area_and_a_limited_time(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with SilentPeer() as source, SilentPeer() as registry:
        site.document["source"]["port"] = source.port
        site.document["format"]["registry"] = f"http://127.0.0.1:{registry.port}"
        begun = time.monotonic()
        _, found = site.examined(capsys)
        took_s = time.monotonic() - begun
    assert took_s < AREA_S + 5
    assert sorted(codes(found)) == ["registry.unreachable", "source.unreachable"]
    assert found["checked"] == ["kafka", "spark", "sink lake", "sink shop"]


def sign(site: Site, name: str, age_ms: int = 0, state: str = "reading", reason: str = "") -> None:
    """Write a liveness record as a producer of a machine does."""
    document(site, SIGN_KEY, Sign(at_ms=time.time_ns() // 1_000_000 - age_ms, state=state, reason=reason, machine=name))


def document(site: Site, key: str, written: object | None) -> None:
    """Write a document into the state topic; None removes it."""
    producer = RecordProducer({"bootstrap.servers": site.kafka.bootstrap_servers})
    value = None if written is None else value_of(written)
    producer.produce(f"{site.name}.state", value, key, partition=partition_of(key))
    producer.flush(30)


def test_a_log_that_the_next_start_needs_and_that_is_purged_is_an_error(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = OffsetDocument(epoch=0, file="binlog.000000", pos=4, gtid_set="", server="", committed_ms=1)
    document(site, OffsetDocument.KEY, before)
    try:
        code, found = site.examined(capsys)
    finally:
        document(site, OffsetDocument.KEY, None)
    (finding,) = found["findings"]
    assert (code, finding["code"], finding["severity"], finding["fix"]) == (1, "source.log_lost", "error", "tidemark repair")
    assert "binlog.000000, where reading continues, is purged: the server has " in finding["evidence"]
    assert codes(site.examined(capsys)[1]) == []


def test_the_last_lines_of_jobs_that_ended_are_shown(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    service = site.folder / "lake" / "_tidemark"
    service.mkdir(parents=True)
    alive = service / "alive.json"
    ended = Sign(at_ms=time.time_ns() // 1_000_000, state="ended", reason="No space left on device")
    sign(site, machine(), state="ended", reason="binlog.000001 is purged")
    try:
        alive.write_text(json.dumps(encode(ended)), "utf-8")
        code, found = site.examined(capsys)
        assert (code, codes(found)) == (1, ["kafka.producer_ended", "sink.merge_ended"])
        assert [one["severity"] for one in found["findings"]] == ["error", "error"]
        assert found["findings"][0]["evidence"].endswith("Z: binlog.000001 is purged")
        assert found["findings"][1]["evidence"].endswith("Z: No space left on device")
        sign(site, machine(), age_ms=3_600_000, state="ended")  # one of before says nothing
        sign(site, machine(), state="ended")
        alive.write_text(json.dumps(encode(replace(ended, reason=""))), "utf-8")
        assert codes(site.examined(capsys)[1]) == [], "they were stopped"
    finally:
        document(site, SIGN_KEY, None)
        shutil.rmtree(site.folder / "lake")


def test_liveness_records_that_cannot_be_read_are_said_to_be_unknown(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    def silent(*_: object) -> list[Sign]:
        raise PublishError("Kafka sent nothing for 3 s")

    site.patch.setattr("tidemark.doctor.kafka_checks.last_signs", silent)
    _, found = site.examined(capsys)
    assert "the liveness records of producers: Kafka sent nothing for 3 s" in found["unchecked"]["kafka"]


def test_a_full_disk_is_an_error(site: Site) -> None:
    folder = site.folder / "full"
    folder.mkdir()
    site.document["sinks"][0]["path"] = str(folder)
    disk = 'mount -t tmpfs -o size=1m tmpfs "$0"; head -c 1m /dev/zero > "$0/filler"; exec "$@"'
    (finding,) = examined_within(site, [*ON_A_SMALL_DISK[:5], disk, str(folder)])["findings"]
    assert (finding["code"], finding["severity"]) == ("sink.free_space", "error")
    assert f"the disk of {folder} is full" in finding["evidence"]


def test_a_producer_on_another_machine_is_named_and_ours_is_not(whole: Site, capsys: pytest.CaptureFixture[str]) -> None:
    sign(whole, machine(), age_ms=5_000)
    assert codes(whole.examined(capsys)[1]) == []
    sign(whole, "of another kernel", age_ms=600_000)
    assert codes(whole.examined(capsys)[1]) == []
    sign(whole, "of another kernel", age_ms=5_000)
    code, found = whole.examined(capsys)
    (finding,) = found["findings"]
    assert (code, finding["code"], finding["severity"]) == (1, "kafka.other_producer", "error")
    deadline = time.monotonic() + 60
    while codes(found := whole.examined(capsys)[1]) != ["kafka.producer_ended"]:  # until both have been silent for some time
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    assert found["findings"][0]["severity"] == "warning"
    document(whole, SIGN_KEY, None)  # other tests share the topic


def test_one_producer_elsewhere_is_a_warning() -> None:
    settings = from_mapping({"name": "shop", "source": {"tables": ["a"]}})
    there = Sign(at_ms=time.time_ns() // 1_000_000, state="reading", machine="of another kernel")
    (found,) = producer_findings(settings, [there])
    assert (found.code, found.severity) == ("kafka.other_producer", Severity.WARNING)
    assert list(producer_findings(settings, [])) == []


@pytest.mark.parametrize(("copies", "brokers", "found"), [([1, 1], 3, 1), ([1, 3], 3, 1), ([3, 3], 3, 0), ([1, 1], 1, 0), ([], 3, 0)])
def test_a_state_topic_with_one_copy_is_named_where_there_could_be_more(copies: list[int], brokers: int, found: int) -> None:
    assert [one.code for one in copy_findings("shop.state", copies, brokers)] == ["kafka.one_copy"] * found


def test_the_copies_of_the_state_topic_are_counted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker is the only one, and counts as two."""
    site.patch.setattr("tidemark.doctor.kafka_checks.copy_findings", lambda state, copies, brokers: copy_findings(state, copies, brokers + 1))
    assert codes(site.examined(capsys)[1]) == ["kafka.one_copy"]


@pytest.mark.slow
def test_a_state_topic_of_two_real_brokers_with_one_copy_is_named(site: Site, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with start_kafka(tmp_path) as first, JoinedBroker(tmp_path / "second", first).start():
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        deadline = time.monotonic() + 60
        while len(admin.list_topics(timeout=10).brokers) < 2:
            assert time.monotonic() < deadline
        found = {}
        for copies in (1, 2):
            name = f"copies{copies}"
            for future in admin.create_topics([NewTopic(f"{name}.state", 2, copies, config={"cleanup.policy": "compact"})]).values():
                future.result(60)
            site.document |= {"name": name, "kafka": {"bootstrap_servers": first.bootstrap_servers}}
            found[copies] = codes(site.examined(capsys)[1])
    assert found == {1: ["kafka.one_copy"], 2: []}


def test_what_the_first_start_fetches_is_not_checked(site: Site, tmp_path: Path) -> None:
    environment = {"JAVA_HOME": None, "PATH": "/nowhere", "TIDEMARK_CACHE": str(tmp_path)}
    found = examined_within(site, (), environment)
    assert "spark" not in found["checked"]
    assert "not here yet: the first start of `tidemark merge` fetches what is missing" in found["unchecked"]["spark"]
    assert not [one for one in found["findings"] if one["code"].startswith("spark")]


def test_the_shape_that_the_page_shows(site: Site) -> None:
    found = examine(from_mapping(site.document))
    assert (found.findings, found.has_errors, dict(found.unchecked)) == ((), False, {})
