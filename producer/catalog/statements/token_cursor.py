"""A position in a list of tokens, and parts of such lists."""

from __future__ import annotations

from producer.catalog.statements.tokens import Kind, Token


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
        """Return the next token and move behind it; `IndexError` behind the end."""
        token = self._tokens[self._at]
        self._at += 1
        return token

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
        """Return the inside of a parenthesised group and move behind it; [] where none begins."""
        if not self.accept_punctuation("("):
            return []
        depth, start = 1, self._at
        while not self.done:
            token = self.next()
            depth += token.is_punctuation("(") - token.is_punctuation(")")
            if not depth:
                return self._tokens[start : self._at - 1]
        return self._tokens[start:]

    def rest(self) -> list[Token]:
        """Return all remaining tokens and move behind them."""
        rest = self._tokens[self._at :]
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


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """Return the parts of a token list between commas outside of parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        if not depth and token.is_punctuation(","):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def outside_groups(tokens: list[Token]) -> list[Token]:
    """Return the tokens outside of parentheses."""
    outside, depth = [], 0
    for token in tokens:
        depth += token.is_punctuation("(")
        if not depth:
            outside.append(token)
        depth -= token.is_punctuation(")")
    return outside
