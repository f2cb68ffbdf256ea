"""A statement about a table that nobody captures leads to a captured one, and the producer's user may or may not see how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas.documents import UnseenStatementsDocument
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database
from tidemark.api.observe import Observer

SLOW = pytest.mark.slow
BEFORE = ("SELECT ON {schema}.*", "INSERT, DELETE ON {schema}.tidemark_signal", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*")
SEES = ("TRIGGER ON *.*",)
SEES_ROUTINES = {"mysql57": "SELECT ON mysql.proc", "mysql97": "SHOW_ROUTINE ON *.*", "mariadb114": "SELECT ON mysql.proc"}


@pytest.fixture(params=["mysql80", "mariadb114", *(pytest.param(one, marks=SLOW) for one in ("mysql57", "mysql97"))])
def source(request: Any, kafka: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE foreign_t (id INT PRIMARY KEY)")
    if server.flavour == "mysql":
        created.execute("SET GLOBAL log_bin_trust_function_creators = ON")
    yield created
    created.execute(f"DROP USER IF EXISTS {created.schema}@'%'")
    created.connection.close()


@pytest.fixture
def outside(source: Source, fresh_database: Callable[..., str]) -> str:
    """A database of which nothing is captured, and that the user has no right on."""
    name = fresh_database(source.server)
    source.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    return name


def settings_with(source: Source, *grants: str) -> Any:
    """Return the settings of a user with these grants and those from before; only one table of the database is captured."""
    source.execute(f"CREATE USER {source.schema}@'%' IDENTIFIED BY 'x'")
    more = () if source.server.name in ("mysql57", "mariadb114") else ("XA_RECOVER_ADMIN ON *.*",)
    for grant in (*BEFORE, *more, *grants):
        source.execute(f"GRANT {grant.format(schema=source.schema)} TO {source.schema}@'%'")
    return source.settings(user=source.schema, password="x", tables=[f"{source.schema}\\.t"])


TRIGGER = "CREATE TRIGGER {at}.tr AFTER INSERT ON {at}.{table} FOR EACH ROW INSERT INTO {schema}.t VALUES (NEW.id + 50)"
FUNCTION = """CREATE FUNCTION {at}.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA
 BEGIN INSERT INTO {schema}.t VALUES (60); RETURN 1; END"""


def in_statement_format(source: Source, statement: str) -> None:
    source.execute("SET SESSION binlog_format = 'STATEMENT'", statement, "SET SESSION binlog_format = 'ROW'")


@pytest.mark.parametrize("where", ["elsewhere", "beside"])
def test_a_trigger_that_the_documented_grants_show_stops_the_reader(source: Source, outside: str, where: str) -> None:
    at, table = (outside, "t") if where == "elsewhere" else (source.schema, "foreign_t")
    source.execute(TRIGGER.format(at=at, table=table, schema=source.schema))
    with running(settings_with(source, *SEES)) as run:
        in_statement_format(source, f"INSERT INTO {at}.{table} VALUES (1)")
        run.until_ended()
    assert f"may lead from it to {source.schema}.t, which is captured" in str(run.error)


def test_a_statement_of_which_all_is_seen_is_passed_over_without_a_word(
    source: Source, outside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(settings_with(source, *SEES)) as run:
        in_statement_format(source, f"INSERT INTO {outside}.t VALUES (1)")
        in_statement_format(source, "INSERT INTO foreign_t VALUES (1)")
        run.caught_up(source)
        assert run.error is None
    assert "log.statement_passed_unseen" not in capsys.readouterr().out
    assert noted(source) is None


def test_without_the_right_a_warning_and_the_status_name_it(
    source: Source, outside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute(TRIGGER.format(at=source.schema, table="foreign_t", schema=source.schema))
    settings = settings_with(source)
    with running(settings) as run:
        in_statement_format(source, "INSERT INTO foreign_t VALUES (1)")
        in_statement_format(source, "INSERT INTO foreign_t VALUES (2)")
        run.caught_up(source)
        assert run.error is None
    said = [line for line in capsys.readouterr().out.splitlines() if "log.statement_passed_unseen" in line]
    assert len(said) == 1, "once a table"
    assert "GRANT TRIGGER ON *.* TO" in said[0]
    document = noted(source)
    assert document is not None
    assert document.tables == (f"{source.schema}.foreign_t",)
    with Observer(settings) as observer:
        notes = observer.read().notes
    assert any("GRANT TRIGGER ON *.* TO" in note and "foreign_t" in note for note in notes), notes
    source.execute(f"GRANT TRIGGER ON *.* TO {source.schema}@'%'")
    with running(settings) as run:
        source.execute("INSERT INTO t VALUES (1)")
        run.caught_up(source)
    assert noted(source) is None


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_function_is_followed_with_the_right_to_see_it_and_named_without(source: Source, outside: str, is_seen: bool) -> None:
    right = SEES_ROUTINES.get(source.server.name, "SELECT ON *.*")
    source.execute(FUNCTION.format(at=source.schema, schema=source.schema))
    with running(settings_with(source, *SEES, *([right] if is_seen else []))) as run:
        in_statement_format(source, f"INSERT INTO foreign_t VALUES ({source.schema}.f())")
        if is_seen:
            run.until_ended()
        else:
            run.caught_up(source)
    document = noted(source)
    if is_seen:
        assert f"may lead from it to {source.schema}.t, which is captured" in str(run.error)
        assert document is None
    else:
        assert run.error is None
        assert document is not None
        assert [grant.partition(" TO ")[0] for grant in document.grants] == [f"GRANT {right}"]


def test_a_view_whose_text_is_hidden_stops_the_reader_if_the_server_reports_a_captured_database(
    source: Source, outside: str
) -> None:
    """MySQL does. MariaDB reports no databases: there it is a warning, and the note goes with the right."""
    source.execute(f"CREATE VIEW {outside}.w AS SELECT id FROM {source.schema}.t")
    right = f"GRANT SELECT, SHOW VIEW ON `{outside}`.`w` TO "
    settings = settings_with(source, *SEES)
    with running(settings) as run:
        in_statement_format(source, f"INSERT INTO {outside}.w VALUES (1)")
        if source.server.flavour == "mysql":
            run.until_ended()
            assert f"{outside}.w, whose text this user may not see: {right}" in str(run.error)
            return
        run.caught_up(source)
    document = noted(source)
    assert document is not None
    assert document.grants[0].startswith(right)
    with running(settings) as run:
        run.caught_up(source)
    assert noted(source) == document
    source.execute(*document.grants)
    with running(settings) as run:
        run.caught_up(source)
    assert noted(source) is None


def test_a_server_that_reports_a_captured_database_is_believed(source: Source, outside: str) -> None:
    """MySQL does. MariaDB reports no databases: there it is a warning."""
    source.execute(TRIGGER.format(at=outside, table="t", schema=source.schema))
    with running(settings_with(source)) as run:
        in_statement_format(source, f"INSERT INTO {outside}.t VALUES (1)")
        if source.server.flavour == "mariadb":
            run.caught_up(source)
            assert noted(source) is not None
            return
        run.until_ended()
    assert f"the server reports that it changes the database {source.schema}" in str(run.error)
    assert "GRANT TRIGGER ON *.* TO" in str(run.error)


def noted(source: Source) -> UnseenStatementsDocument | None:
    with Observer(source.settings()) as observer:
        return observer.state().one(UnseenStatementsDocument)
