"""SQL text of the log cut into tokens: words, quoted names, strings, numbers, punctuation; comments removed.

What is in `/*! ... */` counts: a server writes the comments it did not execute into its log without the
`!`. `/*M! ... */` counts on MariaDB only. A string's escapes are those of the sql_mode the
statement ran under; where that is not known, of one without NO_BACKSLASH_ESCAPES, and a text that ends inside a string is cut again
with the other rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

_FIRST_VALUE: Final = re.compile(r"""['"(=<>]|(?<![\w$`])\d""")
_SHOWN: Final = 80


class Kind(Enum):
    """What a token is. NAME is quoted by backticks (and by `"` under ANSI_QUOTES), STRING by quotes; the others are bare."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    PUNCTUATION = "punctuation"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` is unquoted and unescaped; `upper` is set for bare words only, else ''.

    `double_quoted` marks a STRING in `"`: if the sql_mode is not known, the position decides whether it is a name. `has_escapes`
    says that its text depends on how backslashes count, which is not known. Bit and hex literals (`b'101'`, `x'4F'`, `0x4F`) are
    NUMBERs as written.

    `start` and `end` are offsets into the text that was tokenised, of the token as written: quotes and prefixes are included. Equal
    tokens may have different offsets.
    """

    kind: Kind
    text: str
    upper: str = ""
    double_quoted: bool = False
    has_escapes: bool = False
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def is_punctuation(self, text: str) -> bool:
        """Return whether it is that punctuation character."""
        return self.kind is Kind.PUNCTUATION and self.text == text


_PATTERN: Final = r"""
      (?P<space>\s+|--(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*)
    | (?P<open>/\*M?!(?:\d{5,6})?)
    | (?P<comment>/\*.*?(?:\*/|\Z))
    | (?P<close>\*/)
    | (?P<literal>[bB]'[01]*'|[xX]'[0-9A-Fa-f]*'|0x[0-9A-Fa-f]+(?![\w$])|0b[01]+(?![\w$]))
    | (?P<string>STRINGS)
    | (?P<name>`(?:[^`]|``)*`|NAMES)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))
    | (?P<word>[\w$\u0080-\uffff@]+)
    | (?P<punctuation>.)
"""
_FLAGS: Final = re.VERBOSE | re.DOTALL
_SINGLE: Final = r"""[nN]?'(?:[^'\\]|''|\\.)*'"""
_DOUBLE: Final = r'''"(?:[^"\\]|""|\\.)*"'''
_RAW_SINGLE: Final = r"""[nN]?'(?:[^']|'')*'"""
_RAW_DOUBLE: Final = r'''"(?:[^"]|"")*"'''


def _compiled(strings: str, names: str = r"`\b\B") -> re.Pattern[str]:
    """Return the pattern with these literals; by default nothing but backticks quotes a name."""
    return re.compile(_PATTERN.replace("STRINGS", strings).replace("NAMES", names), _FLAGS)


_BACKSLASHES: Final = _compiled(f"{_SINGLE}|{_DOUBLE}")
_NO_BACKSLASHES: Final = _compiled(f"{_RAW_SINGLE}|{_RAW_DOUBLE}")
_ANSI_BACKSLASHES: Final = _compiled(_SINGLE, _RAW_DOUBLE)
_ANSI_NO_BACKSLASHES: Final = _compiled(_RAW_SINGLE, _RAW_DOUBLE)
_WITH_BACKSLASHES: Final = (_BACKSLASHES, _ANSI_BACKSLASHES)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
_OPEN_QUOTES: Final = frozenset("'\"`")


def tokenise(sql: str, flavour: str, sql_mode: int | None = None) -> list[Token]:
    """Return all tokens of a statement, without a trailing `;`; `sql_mode` is that of its session, where it is known."""
    if sql_mode is None:
        tokens = list(scan(sql, flavour))
        if any(token.kind is Kind.PUNCTUATION and token.text in _OPEN_QUOTES for token in tokens):
            tokens = list(_scan(sql, flavour, _NO_BACKSLASHES))
    else:
        raw, ansi = bool(sql_mode & _NO_BACKSLASH_ESCAPES), bool(sql_mode & _ANSI_QUOTES)
        pattern = ((_BACKSLASHES, _NO_BACKSLASHES), (_ANSI_BACKSLASHES, _ANSI_NO_BACKSLASHES))[ansi][raw]
        tokens = [replace(token, has_escapes=False) if token.has_escapes else token for token in _scan(sql, flavour, pattern)]
    while tokens and tokens[-1].is_punctuation(";"):
        tokens.pop()
    return tokens


def without_set_statement(tokens: list[Token]) -> list[Token]:
    """Return the tokens behind MariaDB's `SET STATEMENT variable=value, ... FOR statement`; all tokens of other statements."""
    if [token.upper for token in tokens[:2]] != ["SET", "STATEMENT"]:
        return tokens
    at = next((index for index, token in enumerate(tokens) if token.upper == "FOR"), len(tokens))
    return tokens[at + 1 :]


def replaced(sql: str, changes: Iterable[tuple[Token, str]]) -> str:
    """Return the statement with other text in place of some of its tokens; a new text is SQL as written, with its quotes."""
    parts, at = list[str](), 0
    for token, text in sorted(changes, key=lambda change: change[0].start):
        parts += (sql[at : token.start], text)
        at = token.end
    return "".join((*parts, sql[at:]))


def scan(sql: str, flavour: str) -> Iterator[Token]:
    """Yield the tokens of a statement one by one, for those who need only the first few."""
    return _scan(sql, flavour, _BACKSLASHES)


def unescape(text: str) -> str:
    r"""Return the value of a quoted string's inside with backslash escapes: `\n` is a newline, `\'` a quote, `\%` stays so."""
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text) if "\\" in text else text


def _scan(sql: str, flavour: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    executed = at = 0
    name_end = -1
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
        elif group == "number" and match[0][0] == "." and name_end == match.start():
            behind = match.start() + 1
            yield Token(Kind.PUNCTUATION, ".", start=match.start(), end=behind)  # `db.5`: behind a name it is a name, too
            yield Token(Kind.WORD, match[0][1:], match[0][1:].upper(), start=behind, end=at)
        elif group not in ("space", "comment"):
            name_end = at if group in ("word", "name") else 0
            yield _token(match, backslashes=pattern in _WITH_BACKSLASHES)


def _end_of_comment(sql: str, at: int) -> int:
    end = sql.find("*/", at)
    return len(sql) if end < 0 else end + 2


def _token(match: re.Match[str], *, backslashes: bool) -> Token:
    group, text, (start, end) = match.lastgroup, match[0], match.span()
    if group == "word":
        return Token(Kind.WORD, text, text.upper(), start=start, end=end)
    if group == "name":
        return Token(Kind.NAME, text[1:-1].replace(text[0] * 2, text[0]), start=start, end=end)
    if group == "string":
        text = text.lstrip("nN")
        quote = text[0]
        inside = _unquote(text[1:-1], quote, backslashes=backslashes)
        return Token(Kind.STRING, inside, double_quoted=quote == '"', has_escapes="\\" in text, start=start, end=end)
    kind = Kind.NUMBER if group in ("number", "literal") else Kind.PUNCTUATION
    return Token(kind, text, start=start, end=end)


def _unquote(inside: str, quote: str, *, backslashes: bool) -> str:
    if not backslashes:
        return inside.replace(quote * 2, quote)
    pieces = re.split(rf"(\\.|{quote}{quote})", inside, flags=re.DOTALL)
    return "".join(quote if piece == quote * 2 else unescape(piece) for piece in pieces)


def without_values(sql: str) -> str:
    """Return how a data change begins, before its first value: rows are in no log above `debug`."""
    return _FIRST_VALUE.split(sql[:_SHOWN], maxsplit=1)[0].strip()
