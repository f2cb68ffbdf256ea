"""`--watch` and tables of text."""

from __future__ import annotations

import pytest

from schemas.readable import aligned, moment
from tidemark import cli
from tidemark.commands.redraw import show


def test_a_text_is_shown_once_without_watch(capsys: pytest.CaptureFixture[str]) -> None:
    show(lambda: "seen", None)
    assert capsys.readouterr().out == "seen\n"


def test_elsewhere_than_on_a_terminal_a_watched_text_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    texts = iter(["one", "two", "three"])
    with pytest.raises(StopIteration):
        show(lambda: next(texts), 0.01)
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_columns_are_below_each_other() -> None:
    assert aligned([("a", "long"), ("longer", "b")], "  ") == ["  a       long", "  longer  b"]
    assert aligned([]) == []
    assert (moment(None), moment(0)) == ("unknown", "1970-01-01 00:00:00Z")


@pytest.mark.parametrize("verb", [["status"], ["lag"], ["tables"], ["snapshot", "list"]])
def test_watch_has_a_pause_of_its_own_and_refuses_one_that_is_none(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.parser().parse_args([*verb, "--watch"]).watch == 2.0
    assert cli.parser().parse_args([*verb, "--watch", "5"]).watch == 5.0
    for wrong in ("0", "inf", "nan", "often"):
        with pytest.raises(SystemExit):
            cli.parser().parse_args([*verb, "--watch", wrong])
    assert "--watch" in capsys.readouterr().err
