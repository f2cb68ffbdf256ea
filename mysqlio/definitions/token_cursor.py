"""A position in a list of tokens, and parts of such lists.

What reads a text asks for the tokens that it needs (`require`, `needed_name`) and for the end (`end`); any other token raises
`UnreadError`, so that none is passed over.
"""

from __future__ import annotations

from typing import Final

from mysqlio.definitions.tokens import Kind, Token

_QUALIFIERS: Final = 2
"""Names in front of a column: those of its database and table, or of its table."""


class UnreadError(Exception):
    """A text with a token where the reader expects another, or the end. It never leaves the package."""


class Cursor:
    """A position in a list of tokens. Words are matched in upper case; quoted names are never keywords."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self._at >= len(self._tokens)

    def peek(self, ahead: int = 0) -> Token | None:
        """Return the token `ahead` tokens further, None behind the end."""
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Return the bare word there in upper case, '' for anything else."""
        token = self.peek(ahead)
        return token.upper if token else ""

    def next(self) -> Token:
        """Return the next token and move behind it; `UnreadError` behind the end."""
        token = self.peek()
        if token is None:
            raise self.unread()
        self._at += 1
        return token

    def unread(self) -> UnreadError:
        """Return the error for the token that comes next."""
        token = self.peek()
        return UnreadError("the text ends too early" if token is None else f"{token.text!r} is not expected")

    def end(self) -> None:
        """Raise `UnreadError` if a token is left."""
        if not self.done:
            raise self.unread()

    def require(self, *words: str) -> None:
        """Move behind these words; `UnreadError` for others."""
        if not self.accept(*words):
            raise self.unread()

    def accept(self, *words: str) -> bool:
        """Move behind these words if they come next, all or none."""
        if all(self.word(index) == word for index, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def accept_any(self, *words: str) -> str:
        """Move behind one of these words if it comes next; return it, or ''."""
        word = self.word()
        if word in words:
            self._at += 1
            return word
        return ""

    def accept_punctuation(self, text: str) -> bool:
        """Move behind that punctuation character if it comes next."""
        token = self.peek()
        if token is not None and token.is_punctuation(text):
            self._at += 1
            return True
        return False

    def group(self) -> list[Token]:
        """Return the inside of a parenthesised group and move behind it; [] if none begins, `UnreadError` if it does not end."""
        if not self.accept_punctuation("("):
            return []
        depth, start = 1, self._at
        while not self.done:
            token = self.next()
            depth += token.is_punctuation("(") - token.is_punctuation(")")
            if not depth:
                return self._tokens[start : self._at - 1]
        raise self.unread()

    def needed_group(self) -> list[Token]:
        """Return the inside of a parenthesised group and move behind it; `UnreadError` if none begins."""
        token = self.peek()
        if token is None or not token.is_punctuation("("):
            raise self.unread()
        return self.group()

    def value(self) -> Token:
        """Return the value of an option, with or without `=` before it; `UnreadError` if none comes."""
        self.accept_punctuation("=")
        token = self.peek()
        if token is None or token.kind is Kind.PUNCTUATION:
            raise self.unread()
        return self.next()

    def number(self) -> str:
        """Return the digits that come next; `UnreadError` for anything else."""
        token = self.peek()
        if token is None or token.kind is not Kind.NUMBER:
            raise self.unread()
        return self.next().text

    @property
    def remaining(self) -> list[Token]:
        """All remaining tokens."""
        return self._tokens[self._at :]

    def rest(self) -> list[Token]:
        """Return all remaining tokens and move behind them."""
        rest = self.remaining
        self._at = len(self._tokens)
        return rest

    def name(self) -> str:
        """Return an identifier, quoted or bare, and move behind it; '' where none comes."""
        token = self.peek()
        if token is None or token.kind in (Kind.PUNCTUATION, Kind.NUMBER):
            return ""
        if token.kind is Kind.STRING and not token.double_quoted:
            return ""
        self._at += 1
        return token.text

    def needed_name(self) -> str:
        """Return an identifier and move behind it; `UnreadError` if none comes."""
        name = self.name()
        if not name:
            raise self.unread()
        return name

    def column(self) -> str:
        """Return the name of a column, which the names of its table and database may precede: `remark`, `grade.remark`."""
        self.accept_punctuation(".")
        name = self.needed_name()
        for _ in range(_QUALIFIERS):
            if not self.accept_punctuation("."):
                break
            name = self.needed_name()
        return name


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """Return the parts of a token list between commas outside of parentheses; [] for no tokens."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        if not depth and token.is_punctuation(","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if tokens else []
