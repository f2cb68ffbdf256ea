"""Which tables a data change reaches that is in the log as text: what it names as changed, and what leads on from there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mysqlio.definitions.tokens import tokenise, without_values
from producer.binlog.events import QueryEvent
from producer.catalog.statement_reach import (
    ServerObjects,
    StatementReach,
    all_names,
    changed_tables,
)
from schemas.documents import UnseenStatementsDocument


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("INSERT LOW_PRIORITY IGNORE INTO a.t (x, orders) SELECT x FROM shop.orders", {("a", "t")}),
        ("insert t set x = 1", {("d", "t")}),
        ("REPLACE DELAYED `a`.`b``c` VALUES (1)", {("a", "b`c")}),
        ("DELETE QUICK FROM t WHERE x IN (SELECT x FROM shop.orders)", {("d", "t")}),
        ("DELETE FROM a.t", {("a", "t")}),
        ("LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE `a`.t FIELDS TERMINATED BY ','", {("a", "t")}),
    ],
)
def test_statements_of_one_table_change_that_one(sql: str, tables: set[tuple[str, str]]) -> None:
    assert changed_tables(tokenise(sql, "mysql"), "d") == tables


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE a.t x JOIN (shop.orders o, b) SET o.v = 1",
        "UPDATE LOW_PRIORITY shop.orders SET v = 1",
        "DELETE x FROM shop.orders x JOIN b",
        "DELETE FROM x USING shop.orders AS x",
        "DELETE a.t, shop.orders FROM a.t JOIN shop.orders",
        "WITH c AS (SELECT 1) DELETE FROM shop.orders",
        "(SELECT f() FROM shop . orders)",
        "CALL shop.orders()",
    ],
)
def test_of_every_other_form_all_names_count(sql: str) -> None:
    assert ("shop", "orders") in changed_tables(tokenise(sql, "mysql"), "d")
    assert ("d", "t") in all_names(tokenise("DO t", "mysql"), "d")


OBJECTS = ServerObjects(
    of_tables={
        ("out", "audited"): [("out", "BEGIN INSERT INTO log VALUES (1); CALL deeper(NEW.id); END")],
        ("out", "w"): [("out", "select * from `shop`.`orders`")],
        ("out", "hidden_view"): [("out", None)],
        ("out", "harmless"): [("out", "SET NEW.v = 1")],
    },
    routines={
        ("out", "deeper"): [("out", "BEGIN UPDATE parent SET id = 1; END")],
        ("out", "hidden"): [("out", None)],
    },
    children={("out", "parent"): [("shop", "orders")]},
    tables=[("shop", "orders"), ("out", "t")],
    grants={"*.*": frozenset({"TRIGGER", "SHOW_ROUTINE"})},
    right_to_routines="SHOW_ROUTINE ON *.*",
    account="'us'@'%'",
)


def reach_of(
    objects: ServerObjects, noted: list[UnseenStatementsDocument], earlier: UnseenStatementsDocument | None = None
) -> StatementReach:
    """Return a judge of a server with these objects, from which `shop.orders` is captured."""

    def is_captured(*table: str) -> bool:
        return table == ("shop", "orders")

    return StatementReach(lambda: objects, "mysql", is_captured, noted.append, earlier, lower_case_names=False)


def judged(sql: str, objects: ServerObjects = OBJECTS, **more: Any) -> tuple[str, list[UnseenStatementsDocument]]:
    """Return why the statement concerns a captured table, and what was noted of it. `shop.orders` is captured."""
    noted: list[UnseenStatementsDocument] = []
    reach = reach_of(objects, noted)
    return reach.why_concerned(QueryEvent(3, "out", sql, 0, **more), "log.1:4"), noted


def why(sql: str, **more: Any) -> str:
    reason, noted = judged(sql, **more)
    assert not noted
    return reason


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("INSERT INTO t VALUES (1)", ""),
        ("INSERT INTO t SELECT * FROM shop.orders", ""),
        ("INSERT INTO harmless VALUES (1)", ""),
        ("INSERT INTO t SELECT id FROM audited", ""),
        ("INSERT INTO shop.orders VALUES (1)", "it changes shop.orders"),
        ("INSERT INTO audited VALUES (1)", "lead from it to shop.orders"),
        ("INSERT INTO w VALUES (1)", "lead from it to shop.orders"),
        ("DELETE FROM parent", "lead from it to shop.orders"),
        ("INSERT INTO t VALUES (deeper(1))", "lead from it to shop.orders"),
    ],
)
def test_triggers_routines_views_and_foreign_keys_are_followed(sql: str, reason: str) -> None:
    found = why(sql)
    assert reason in found
    assert bool(found) is bool(reason)


def test_the_databases_that_the_server_reports_rule_out_all_others() -> None:
    assert not why("INSERT INTO audited VALUES (1)", databases=("out",))
    assert not why("INSERT INTO t VALUES (hidden(1))", databases=("out",))
    assert why("INSERT INTO audited VALUES (1)", databases=("out", "shop"))
    assert why("INSERT INTO t VALUES (hidden(1))", databases=("out", "shop"))
    assert why("DELETE FROM parent", databases=())


def test_a_statement_with_a_part_that_is_not_known_is_never_passed_over() -> None:
    assert "not certain" in why("INSERT INTO t VALUES (1)", unclear="its status variable 200 is not known")


TRIGGER, ROUTINE = "GRANT TRIGGER ON *.* TO 'us'@'%'", "GRANT SHOW_ROUTINE ON *.* TO 'us'@'%'"


VIEW = "GRANT SELECT, SHOW VIEW ON `out`.`hidden_view` TO 'us'@'%'"


@pytest.mark.parametrize(
    ("sql", "missing"), [("INSERT INTO t VALUES (hidden(1))", ROUTINE), ("INSERT INTO hidden_view VALUES (1)", VIEW)]
)
def test_a_hidden_text_stops_the_reader_only_if_the_server_reports_a_captured_database(sql: str, missing: str) -> None:
    reason, noted = judged(sql)
    assert not reason
    assert [one.grants for one in noted] == [(missing,)]
    assert f"whose text this user may not see: {missing}" in why(sql, databases=("out", "shop"))


@pytest.mark.parametrize(
    ("sql", "grants", "databases", "missing"),
    [
        ("INSERT INTO t (id) VALUES (1)", {}, None, (TRIGGER,)),
        ("INSERT INTO t (id) VALUES (1)", {"`out`.*": {"TRIGGER"}}, None, (TRIGGER,)),
        ("INSERT INTO shop.t (id) VALUES (1)", {"`shop`.*": {"TRIGGER"}}, ("shop",), ()),
        ("INSERT INTO shop.t (id) VALUES (1)", {"`out`.*": {"TRIGGER"}}, ("shop",), (TRIGGER,)),
        ("INSERT INTO t (id) VALUES (1)", {}, ("out",), ()),
        ("INSERT INTO t VALUES (f(1))", {}, None, (TRIGGER, ROUTINE)),
        ("INSERT INTO t VALUES (f(1))", {"*.*": {"TRIGGER"}}, None, (ROUTINE,)),
        ("INSERT INTO t VALUES (f(1))", {"*.*": {"TRIGGER", "SELECT"}}, None, ()),
        ("INSERT INTO t VALUES (f(1))", {"*.*": {"ALL PRIVILEGES"}}, None, ()),
        ("INSERT INTO calling VALUES (1)", {"*.*": {"TRIGGER"}}, None, (ROUTINE,)),
    ],
)
def test_a_statement_whose_effect_the_user_may_not_see_is_passed_over_and_noted(
    sql: str, grants: dict[str, set[str]], databases: tuple[str, ...] | None, missing: tuple[str, ...]
) -> None:
    bodies = {("out", "calling"): [("out", "CALL p")]}
    of_user = {where: frozenset(privileges) for where, privileges in grants.items()}
    objects = replace(OBJECTS, grants=of_user, of_tables=bodies, routines={})
    reason, noted = judged(sql, objects, databases=databases)
    assert not reason
    assert [one.grants for one in noted] == ([missing] if missing else [])


def test_a_database_that_changes_in_a_way_that_is_not_seen_stops_the_reader_until_the_right_is_granted() -> None:
    unseen = replace(OBJECTS, of_tables={}, grants={})
    reason, _ = judged("INSERT INTO t VALUES (1)", unseen, databases=("out", "shop"))
    assert "changes the database shop" in reason
    assert TRIGGER in reason
    reason, noted = judged("INSERT INTO t VALUES (1)", databases=("out", "shop"))  # the trigger is gone since
    assert not reason
    assert [one.grants for one in noted] == [()]


def test_tables_and_rights_of_an_earlier_document_stay_in_the_next_one() -> None:
    """The position is of the first statement: captured tables may differ from there on."""
    earlier = UnseenStatementsDocument(("crm.a",), (ROUTINE,), "log.1:1")
    noted: list[UnseenStatementsDocument] = []
    unseen = replace(OBJECTS, of_tables={}, grants={})
    reach = reach_of(unseen, noted, earlier)
    for sql in ("INSERT INTO t (id) VALUES (1)", "INSERT INTO u (id) VALUES (1)"):
        assert not reach.why_concerned(QueryEvent(3, "out", sql, 0), "log.1:4")
    assert noted[-1] == UnseenStatementsDocument(("crm.a", "out.t", "out.u"), (ROUTINE, TRIGGER), "log.1:1")


def test_a_document_asks_for_a_right_to_a_view_until_it_is_granted_in_any_case_of_the_name() -> None:
    _, noted = judged("INSERT INTO Hidden_View VALUES (1)")
    assert OBJECTS.lack(noted[0].grants)
    assert not replace(OBJECTS, of_tables={}).lack(noted[0].grants)


def test_tables_are_asked_for_once_until_the_objects_are_read_again() -> None:
    asked: list[tuple[str, str]] = []

    def concerns(*table: str) -> bool:
        asked.append((table[0], table[1]))
        return False

    tables = [("out", f"t{number}") for number in range(100)]
    reach = StatementReach(lambda: replace(OBJECTS, tables=tables), "mysql", concerns, lambda _: None, lower_case_names=False)
    query = QueryEvent(3, "out", "INSERT INTO t (id) VALUES (1)", 0)
    for expected in (100, 0):
        asked.clear()
        assert not reach.why_concerned(query, "log.1:4")
        assert sum(name.startswith("t") and name != "t" for _, name in asked) == expected
    reach.forget()
    asked.clear()
    assert not reach.why_concerned(query, "log.1:4")
    assert len(asked) >= 100


def test_a_warning_of_many_tables_is_forgotten_instead_of_kept_for_ever() -> None:
    noted: list[UnseenStatementsDocument] = []
    reach = reach_of(replace(OBJECTS, grants={}), noted)
    for number in [*range(1001), 0]:
        reach.why_concerned(QueryEvent(3, "out", f"INSERT INTO n{number} (id) VALUES (1)", 0), "log.1:4")
    assert len(noted) == 1002, "the first one is logged again"
    assert len(noted[-1].tables) == 20


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("INSERT INTO cards VALUES ('4111')", "INSERT INTO cards VALUES"),
        ("INSERT INTO cards VALUES(4111)", "INSERT INTO cards VALUES"),
        ("UPDATE shop2.cards4 SET number = 4111", "UPDATE shop2.cards4 SET number"),
        ("DELETE FROM `9`.t WHERE id > 4111", "DELETE FROM `9`.t WHERE id"),
        ("DELETE FROM t LIMIT 4111", "DELETE FROM t LIMIT"),
        ("UPDATE t SET a=x'4111'", "UPDATE t SET a"),
        ('REPLACE INTO t SELECT "secret"', "REPLACE INTO t SELECT"),
    ],
)
def test_a_message_shows_a_statement_up_to_its_first_value(sql: str, shown: str) -> None:
    assert without_values(sql) == shown


def test_each_right_that_is_missing_is_noted_for_each_table() -> None:
    noted: list[UnseenStatementsDocument] = []
    objects = replace(OBJECTS, grants={}, of_tables={}, routines={})
    reach = StatementReach(lambda: objects, "mysql", lambda *table: table == ("shop", "orders"), noted.append, lower_case_names=False)
    for sql in ("INSERT INTO t (id) VALUES (1)", "INSERT INTO t VALUES (f(1))", "INSERT INTO t VALUES (f(2))", "DO 1"):
        assert not reach.why_concerned(QueryEvent(3, "out", sql, 0), "log.1:4")
    assert [one.grants for one in noted] == [(TRIGGER,), (TRIGGER, ROUTINE), (TRIGGER, ROUTINE)]
