"""SQL text of the log cut into tokens: words, quoted names, strings, numbers, punctuation; comments removed.

What is in `/*! ... */` counts: a server writes the comments it did not execute into its log without the
`!`. `/*M! ... */` counts on MariaDB only. A string's escapes are those of the sql_mode the
statement ran under; where that is not known, of one without NO_BACKSLASH_ESCAPES, and a text that ends inside a string is cut again
with the other rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Kind(Enum):
    """What a token is. NAME is quoted by backticks, STRING by either quote; the others are bare."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    PUNCTUATION = "punctuation"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` is unquoted and unescaped; `upper` is set for bare words only, else ''.

    `double_quoted` marks a STRING in `"`: a name under ANSI_QUOTES, so the position decides. `has_escapes` says
    that its text depends on how backslashes count, and that this is not known. Bit and hex literals (`b'101'`, `x'4F'`, `0x4F`) are
    NUMBERs as written.
    """

    kind: Kind
    text: str
    upper: str = ""
    double_quoted: bool = False
    has_escapes: bool = False

    def is_punctuation(self, text: str) -> bool:
        """Return whether it is that punctuation character."""
        return self.kind is Kind.PUNCTUATION and self.text == text


_PATTERN: Final = r"""
      (?P<space>\s+|--(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*)
    | (?P<open>/\*!\d*|/\*M!\d*)
    | (?P<comment>/\*.*?(?:\*/|\Z))
    | (?P<close>\*/)
    | (?P<literal>[bB]'[01]*'|[xX]'[0-9A-Fa-f]*'|0x[0-9A-Fa-f]+(?![\w$])|0b[01]+(?![\w$]))
    | (?P<string>STRINGS)
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))
    | (?P<word>[\w$\u0080-\uffff@]+)
    | (?P<punctuation>.)
"""
_FLAGS: Final = re.VERBOSE | re.DOTALL
_STRINGS: Final = r"""[nN]?'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*\""""
_RAW_STRINGS: Final = r"""[nN]?'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_BACKSLASHES: Final = re.compile(_PATTERN.replace("STRINGS", _STRINGS), _FLAGS)
_NO_BACKSLASHES: Final = re.compile(_PATTERN.replace("STRINGS", _RAW_STRINGS), _FLAGS)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
_OPEN_QUOTES: Final = frozenset("'\"`")


def tokenise(sql: str, flavour: str, sql_mode: int | None = None) -> list[Token]:
    """Return all tokens of a statement, without a trailing `;`; `sql_mode` is that of its session, where it is known."""
    if sql_mode is None:
        tokens = list(scan(sql, flavour))
        if any(token.kind is Kind.PUNCTUATION and token.text in _OPEN_QUOTES for token in tokens):
            tokens = list(_scan(sql, flavour, _NO_BACKSLASHES))
    else:
        pattern = _NO_BACKSLASHES if sql_mode & _NO_BACKSLASH_ESCAPES else _BACKSLASHES
        tokens = [replace(token, has_escapes=False) for token in _scan(sql, flavour, pattern)]
    while tokens and tokens[-1].is_punctuation(";"):
        tokens.pop()
    return tokens


def without_set_statement(tokens: list[Token]) -> list[Token]:
    """Return the tokens behind MariaDB's `SET STATEMENT variable=value, ... FOR statement`; all tokens of other statements."""
    if [token.upper for token in tokens[:2]] != ["SET", "STATEMENT"]:
        return tokens
    at = next((index for index, token in enumerate(tokens) if token.upper == "FOR"), len(tokens))
    return tokens[at + 1 :]


def scan(sql: str, flavour: str) -> Iterator[Token]:
    """Yield the tokens of a statement one by one, for those who need only the first few."""
    return _scan(sql, flavour, _BACKSLASHES)


def unescape(text: str) -> str:
    r"""Return the value of a quoted string's inside with backslash escapes: `\n` is a newline, `\'` a quote, `\%` stays so."""
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text) if "\\" in text else text


def _scan(sql: str, flavour: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    executed = 0
    at = 0
    while at < len(sql):
        match = pattern.match(sql, at)
        if match is None:
            return
        at = match.end()
        group = match.lastgroup
        if group == "open":
            if match[0].startswith("/*M") and flavour != "mariadb":
                at = _end_of_comment(sql, match.end())
            else:
                executed += 1
        elif group == "close" and executed:
            executed -= 1
        elif group not in ("space", "comment"):
            yield _token(group, match[0], backslashes=pattern is _BACKSLASHES)


def _end_of_comment(sql: str, at: int) -> int:
    end = sql.find("*/", at)
    return len(sql) if end < 0 else end + 2


def _token(group: str | None, text: str, *, backslashes: bool) -> Token:
    if group == "word":
        return Token(Kind.WORD, text, text.upper())
    if group == "name":
        return Token(Kind.NAME, text[1:-1].replace("``", "`"))
    if group == "string":
        text = text.lstrip("nN")
        quote = text[0]
        inside = _unquote(text[1:-1], quote, backslashes=backslashes)
        return Token(Kind.STRING, inside, double_quoted=quote == '"', has_escapes="\\" in text)
    if group in ("number", "literal"):
        return Token(Kind.NUMBER, text)
    return Token(Kind.PUNCTUATION, text)


def _unquote(inside: str, quote: str, *, backslashes: bool) -> str:
    if not backslashes:
        return inside.replace(quote * 2, quote)
    pieces = re.split(rf"(\\.|{quote}{quote})", inside, flags=re.DOTALL)
    return "".join(quote if piece == quote * 2 else unescape(piece) for piece in pieces)
