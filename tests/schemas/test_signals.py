"""Signals: what is right becomes a command, what is wrong is answered with a clear error."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress

import pytest

from schemas.errors import SignalError
from schemas.signals import (
    LARGEST_SIGNAL,
    Condition,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
    channel_signal,
    parse_signal,
    require_predicate,
)


def execute(**data: object) -> ExecuteSnapshot:
    names = {key.replace("_", "-"): value for key, value in data.items()}
    command = parse_signal("s", "execute-snapshot", json.dumps(names))
    assert isinstance(command, ExecuteSnapshot)
    return command


def condition(predicate: str) -> dict[str, str]:
    return {"data-collection": "db\\.t", "filter": predicate}


def test_execute_snapshot_as_debezium_takes_it() -> None:
    command = execute(
        data_collections=["db\\.t"], type="incremental", additional_conditions=[condition("id > 5")], x=1
    )
    assert command == ExecuteSnapshot("s", ("db\\.t",), (Condition("db\\.t", "id > 5"),))


def test_the_other_commands() -> None:
    assert parse_signal("s", "stop-snapshot", "{}") == StopSnapshot("s")
    assert parse_signal("s", "stop-snapshot", '{"data-collections": ["a"]}') == StopSnapshot("s", ("a",))
    assert parse_signal("s", "pause-snapshot", None) == PauseSnapshot("s")
    assert parse_signal("s", "resume-snapshot", " ") == ResumeSnapshot("s")
    assert parse_signal("s", "log", '{"message": "at {}"}') == LogMessage("s", "at {}")


@pytest.mark.parametrize(
    ("signal_type", "data", "words"),
    [
        ("execute-snapshot", '{"data-collections": [', "not valid JSON: .* at line 1 column 23"),
        ("execute-snapshot", '{\n"a" 1}', "at line 2 column 5"),
        ("execute-snapshot", "[]", "must be a JSON object, not a list"),
        ("execute-snapshot", "[" * 60_000, "not valid JSON: nested too deeply"),
        ("execute-snapshot", "{}", "data-collections is missing"),
        ("execute-snapshot", '{"data-collections": []}', "data-collections is empty"),
        ("execute-snapshot", '{"data-collections": "a"}', "must be a list of texts, not text"),
        (
            "execute-snapshot",
            '{"data-collections": ["a", 1]}',
            r"data-collections\[1\] must be text, not a number",
        ),
        ("execute-snapshot", '{"data-collections": [" "]}', r"data-collections\[0\] is empty"),
        ("execute-snapshot", '{"data-collections": ["("]}', "not a regular expression"),
        ("execute-snapshot", '{"data-collection": ["a"]}', "did you mean 'data-collections'"),
        ("execute-snapshot", '{"data-collections": ["a"], "type": 5}', "type must be text, not a number"),
        ("execute-snapshot", '{"data-collections": ["a"], "type": "x"}', "unknown snapshot type 'x'; known are INC"),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "surrogate-key": 5}',
            "surrogate-key must be text, not a number",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "additional-condition": "x"}',
            "additional-conditions",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "additional-conditions": {}}',
            "list of objects, not an",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "additional-conditions": [1]}',
            "an object, not a number",
        ),
        ("stop-snapshot", '{"type": "blocked"}', "unknown snapshot type 'blocked'"),
        ("log", "{}", "message is missing"),
        ("log", '{"message": null}', "message must be text, not null"),
        ("exeucte-snapshot", "{}", "unknown signal type 'exeucte-snapshot'; did you mean 'execute-snapshot'"),
        ("EXECUTE-SNAPSHOT", "{}", "did you mean 'execute-snapshot'"),
        ("zzzzzz", "{}", "known are close-source, execute-snapshot, log"),
        ("schema-changes", "{}", "not supported yet"),
    ],
)
def test_what_is_wrong_is_said(signal_type: str, data: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        parse_signal("s", signal_type, data)


@pytest.mark.parametrize(
    "predicate",
    [
        "id > 5 AND name = 'a;b -- c # d /* e */'",
        "a--1 > 0",
        "name = 'it''s (' OR name = 'x\\'y;'",
        "(a = 1) AND (b IN (SELECT max(b) FROM u))",
        '`odd;name(` = "x;"',
        "(SELECT count(*) FROM u) > 5",
        "selected = 1",
    ],
)
def test_one_predicate_is_taken(predicate: str) -> None:
    assert execute(data_collections=["a"], additional_conditions=[condition(predicate)]).conditions


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        ("id > 5; DROP TABLE t", "';' at column 7"),
        ("id > 5 -- more", "comment at column 8"),
        ("id > 5 --", "comment"),
        ("id > 5 # more", "comment"),
        ("id /* x */ > 5", "comment"),
        ("a = 1) OR (1 = 1", "closes a parenthesis at column 6"),
        ("((a = 1)", "1 unclosed parenthesis"),
        ("a = 'x", "unclosed ' at column 5"),
        ("a = 'x\\'", "unclosed '"),
        ("a = `x", "unclosed `"),
        ("a = ?", "parameters are not possible"),
        ("SELECT * FROM t", "not a statement"),
        (" ", "is empty"),
    ],
)
def test_what_is_no_single_predicate_is_refused(predicate: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        execute(data_collections=["a"], additional_conditions=[condition(predicate)])


def test_the_first_matching_condition_counts_in_any_letter_case() -> None:
    command = ExecuteSnapshot("s", ("x",), (Condition("DB\\.A", "one"), Condition("db\\..*", "two")))
    assert command.condition_for("db.a") == "one"
    assert command.condition_for("db.b") == "two"
    assert command.condition_for("other.b") is None


def test_random_texts_give_commands_or_signal_errors_only() -> None:
    randomness = random.Random(20240601)
    pieces = [
        "{",
        "}",
        '"data-collections"',
        ":",
        '["a"]',
        ",",
        '"type"',
        "null",
        "1e999",
        "\\",
        "'",
        '"filter"',
        " ",
    ]
    for _ in range(3000):
        text = "".join(randomness.choices(pieces, k=randomness.randrange(8)))
        for signal_type in ("execute-snapshot", "stop-snapshot", "log"):
            with suppress(SignalError):
                parse_signal("s", signal_type, text)
        with suppress(SignalError):
            require_predicate(text, "filter")


def test_a_signal_may_say_which_way_its_rows_go() -> None:
    for via in ("auto", "kafka", "spark"):
        assert execute(data_collections=["a"], via=via).via == via
    assert execute(data_collections=["a"]).via is None
    with pytest.raises(SignalError, match="via must be 'auto', 'kafka' or 'spark', not 'flink'"):
        execute(data_collections=["a"], via="flink")


def test_an_answer_of_the_merge_job_is_no_signal() -> None:
    with pytest.raises(SignalError, match="are written by the merge job"):
        parse_signal("w-done", "tidemark-load-answer", '{"rows":1}')


def test_a_signal_may_say_who_merges_its_rows() -> None:
    command = parse_signal("s", "execute-snapshot", '{"data-collections": ["a"], "merge": "producer"}')
    assert isinstance(command, ExecuteSnapshot)
    assert command.merge == "producer"
    with pytest.raises(SignalError, match="merge must be 'spark' or 'producer', not 'flink'"):
        parse_signal("s", "execute-snapshot", '{"data-collections": ["a"], "merge": "flink"}')


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("id < 4", "id < 4"),
        ("SELECT * FROM db.t WHERE id < 4", "id < 4"),
        ("select * from `db`.`t`\n where\tid < 4;", "id < 4"),
        ("SELECT * FROM t WHERE v = 'a where b'", "v = 'a where b'"),
        ("SELECT * FROM db.t", "TRUE"),
    ],
)
def test_a_blocking_snapshot_takes_predicates_and_debeziums_selects(text: str, predicate: str) -> None:
    command = execute(data_collections=["db\\.t"], type="blocking", additional_conditions=[condition(text)])
    assert command == ExecuteSnapshot("s", ("db\\.t",), (Condition("db\\.t", predicate),), blocking=True)


@pytest.mark.parametrize(
    ("pattern", "table"), [(r"my\.db\.a b", "`my.db`.`a b`"), ("db.a`b", "`db`.`a``b`"), (r"d\.b\.c", "`d` . `b.c`")]
)
def test_a_select_names_its_table_in_backticks(pattern: str, table: str) -> None:
    command = execute(
        data_collections=[pattern],
        type="blocking",
        additional_conditions=[{"data-collection": pattern, "filter": f"SELECT * FROM {table} WHERE a.b < 4"}],
    )
    assert isinstance(command, ExecuteSnapshot)
    assert command.conditions == (Condition(pattern, "a.b < 4"),)


def test_a_select_of_many_spaces_takes_no_longer_than_another() -> None:
    text = f"SELECT * FROM db.t WHERE id{' ' * 60_000}< 4 ;"
    began = time.thread_time()
    command = execute(data_collections=["db\\.t"], type="BLOCKING", additional_conditions=[condition(text)])
    assert time.thread_time() - began < 5
    assert isinstance(command, ExecuteSnapshot)
    assert command.conditions[0].filter == text[25:-2]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM db.t WHERE id < 4",
        "SELECT * FROM db.other WHERE id < 4",
        "SELECT * FROM db.t JOIN db.u WHERE id < 4",
        "SELECT * FROM db.t WHERE id < 4; DELETE FROM db.t",
        "SELECT * FROM db.t WHERE id < 4) OR (1",
    ],
)
def test_a_select_that_is_more_than_rows_of_the_table_is_refused(text: str) -> None:
    with pytest.raises(SignalError, match="additional-conditions"):
        execute(data_collections=["db\\.t"], type="BLOCKING", additional_conditions=[condition(text)])
    with pytest.raises(SignalError, match="must be a predicate"):
        execute(data_collections=["db\\.t"], additional_conditions=[condition("SELECT * FROM db.t WHERE id < 4")])


def test_what_kind_of_snapshot_is_stopped_does_not_matter() -> None:
    assert parse_signal("s", "stop-snapshot", '{"type": "blocking"}') == StopSnapshot("s")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"message": "' + "x" * LARGEST_SIGNAL + '"}', "characters; a signal has 65536 at most"),
        ("[" * 60_000, "nested too deeply"),
        ('{"a": ' * 20_000 + "1" + "}" * 20_000, "characters; a signal has"),
        ('{"message": ' + "9" * 5000 + "}", "a number of too many digits"),
        ('{"message": "\\ud800"}', "half of a surrogate pair"),
        ('{"message": "\\uD83D\\u0041"}', "half of a surrogate pair"),
    ],
)
def test_what_would_overwhelm_the_reader_is_refused(data: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        parse_signal("a", "log", data)
    with pytest.raises(SignalError):
        channel_signal(f'{{"type": "log", "data": {data}}}', "fallback")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(" * 500 + ")" * 500, "more than 100 parentheses"),
        ("shop.t{99999999999}", "not a regular expression: the repetition number is too large"),
        ("t{" + "9" * 5000 + "}", "not a regular expression: Exceeds the limit"),
        ("(?a)(?u)t", "not a regular expression: ASCII and UNICODE flags are incompatible"),
    ],
)
def test_patterns_that_python_minds_in_its_own_ways_are_refused(pattern: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        execute(data_collections=[pattern])
    with pytest.raises(SignalError, match=words):
        execute(data_collections=["db.t"], additional_conditions=[{"data-collection": pattern, "filter": "id > 5"}])
    with pytest.raises(SignalError, match=words):
        parse_signal("s", "stop-snapshot", json.dumps({"data-collections": [pattern]}))


def test_ids_are_short_and_real_characters_pass() -> None:
    with pytest.raises(SignalError, match="256 characters"):
        channel_signal(json.dumps({"id": "x" * 257, "type": "log"}), "fallback")
    with pytest.raises(SignalError, match="256 characters"):
        channel_signal(f'{{"id": {"9" * 300}, "type": "log"}}', "fallback")
    command = parse_signal("a", "log", '{"message": "\\ud83d\\ude00 ß"}')
    assert command == LogMessage("a", "\U0001f600 ß")
