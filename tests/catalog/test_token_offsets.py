"""A token has the offsets of its own text in the statement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mysqlio.definitions.tokens import Kind, Token, replaced, tokenise, without_set_statement

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
PIECES = (
    "CREATE", "t", "a$1", "`a``b`", "`t`.5", "db.5", ".5e3", "1.5", "0x4F", "0xG", "b'101'", "x'4F'", "n'it''s'", "'a\\'b'", "'\\\\'",
    '"q""r"', '"\\""', "'", '"', "`", "\\", "(", ")", ",", ";", "=", "-", "--", "-- to the end\n", "#x\n", "/", "*", "*/", "/* c */",
    "/*!50100 ", "/*!", "/*M! ", "/*M!100100", "é", "@v", "\x00",
)  # fmt: skip
STATEMENTS = st.lists(st.sampled_from(PIECES) | st.sampled_from((" ", "\n")), max_size=25).map("".join) | st.text(
    "a5.'\"`\\-/*!M; \n#é", max_size=25
)
MODES = st.sampled_from((0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES, ANSI_QUOTES | NO_BACKSLASH_ESCAPES))


def written(sql: str, token: Token) -> str:
    return sql[token.start : token.end]


@settings(max_examples=600, deadline=None)
@given(STATEMENTS, st.sampled_from(("mysql", "mariadb")), MODES | st.none())
def test_the_texts_of_tokens_and_those_between_them_are_the_statement(sql: str, flavour: str, mode: int | None) -> None:
    tokens = tokenise(sql, flavour, mode)
    ends = [0, *(token.end for token in tokens)]
    assert all(end <= token.start < token.end for end, token in zip(ends, tokens, strict=False))
    assert replaced(sql, [(token, written(sql, token)) for token in reversed(tokens)]) == sql
    between = replaced(sql, [(token, " ") for token in tokens])
    assert tokenise(between, flavour, mode) == [], "no token is in the text between tokens"


@settings(max_examples=600, deadline=None)
@given(STATEMENTS, st.sampled_from(("mysql", "mariadb")), MODES)
def test_the_text_of_a_token_alone_is_that_token(sql: str, flavour: str, mode: int) -> None:
    for token in tokenise(sql, flavour, mode):
        text = written(sql, token)
        if text == ";":  # at the end of a text it is left out
            continue
        alone = tokenise(text, flavour, mode)
        if token.kind is Kind.WORD and sql[token.start - 1 : token.start] == ".":  # `db.5`: a name because of its position
            assert alone[0].text == token.text
        else:
            assert alone == [token]


def test_equal_tokens_may_have_different_offsets() -> None:
    first, second = tokenise("t t", "mysql")
    assert first == second
    assert hash(first) == hash(second)
    assert [(token.start, token.end) for token in (first, second)] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("mode", [None, 0])
def test_offsets_are_those_of_the_whole_text(mode: int | None) -> None:
    sql = "SET STATEMENT a=1 FOR DROP TABLE /*!50100 IF EXISTS */ `d`.5, n'it\\'s'"
    tokens = without_set_statement(tokenise(sql, "mariadb", mode))
    texts = ["DROP", "TABLE", "IF", "EXISTS", "`d`", ".", "5", ",", "n'it\\'s'"]
    assert [written(sql, token) for token in tokens] == texts


def test_names_are_replaced_in_the_text() -> None:
    sql = "ALTER TABLE shop.orders /* why */ RENAME TO `shop`.`old`;"
    names = [token for token in tokenise(sql, "mysql", 0) if token.text in ("shop", "old")]
    changed = replaced(sql, [(token, f"`{token.text}_2`") for token in names])
    assert changed == "ALTER TABLE `shop_2`.orders /* why */ RENAME TO `shop_2`.`old_2`;"
    assert replaced(sql, []) == sql
