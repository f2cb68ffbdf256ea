"""The reader of Java's regular expressions: a text enters, a tree of `java_patterns` leaves. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tidemark.importers.debezium.java_patterns import (
    END,
    Again,
    CharClass,
    Concat,
    Literal,
    Node,
    PatternError,
    PatternGroup,
    Repeat,
    Symbol,
    concat,
    either,
)  # fmt: skip

_SHORT: Final = "dDsSwW"
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_POSIX: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "Lower": (("a", "z"),), "Upper": (("A", "Z"),), "ASCII": (("\0", "\x7f"),), "Alpha": (("a", "z"), ("A", "Z")),
    "Digit": (("0", "9"),), "Alnum": (("a", "z"), ("A", "Z"), ("0", "9")),
    "Punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "Graph": (("!", "~"),), "Print": ((" ", "~"),), "Blank": ((" ", " "), ("\t", "\t")),
    "Cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "XDigit": (("0", "9"), ("a", "f"), ("A", "F")), "Space": (("\t", "\r"), (" ", " ")),
}  # fmt: skip
_BLANKS: Final = (*((one, one) for one in " \t\xa0\u1680\u180e\u202f\u205f\u3000"), ("\u2000", "\u200a"))
_LINE_ENDS: Final = (("\n", "\r"), ("\x85", "\x85"), ("\u2028", "\u2029"))


def parse(text: str) -> Node:
    """Return the tree of a regular expression of Java; `PatternError` for any other text."""
    reader = _Reader(_tokens(text))
    node = reader.alternatives()
    if not reader.is_at_end:
        raise PatternError("a bracket ) is never opened")
    return node


def _tokens(text: str) -> list[tuple[str, bool]]:
    r"""Return characters, and whether each is quoted by `\Q` … `\E`."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if text.startswith("\\Q", at):
            end = text.find("\\E", at + 2)
            end = len(text) if end < 0 else end
            found += [(char, True) for char in text[at + 2 : end]]
            at = end + 2
        else:
            width = 2 if text[at] == "\\" else 1
            found += [(char, False) for char in text[at : at + width]]
            at += width
    return found


@dataclass(slots=True)
class _Reader:
    """A reader of tokens that goes by Java's grammar."""

    tokens: list[tuple[str, bool]]
    at: int = 0
    groups: list[object] = field(default_factory=list)
    names: dict[str, object] = field(default_factory=dict)

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, offset: int = 0) -> str:
        """Return a character that is not quoted, "" for one that is, and at the end."""
        at = self.at + offset
        return "" if at >= len(self.tokens) or self.tokens[at][1] else self.tokens[at][0]

    def accept(self, text: str) -> bool:
        """Consume a text if it follows."""
        if all(self.peek(offset) == char for offset, char in enumerate(text)):
            self.at += len(text)
            return True
        return False

    def until(self, end: str) -> str:
        """Return the text before a character, and consume both."""
        found = ""
        while not self.is_at_end and self.peek() != end:
            found += self.tokens[self.at][0]
            self.at += 1
        if not self.accept(end):
            raise PatternError(f"{end} is missing")
        return found

    def alternatives(self) -> Node:
        """Read alternatives up to the end of their bracket; flags count up to there, over the bars."""
        active: list[str] = []
        found = [self._sequence(active)]
        while self.accept("|"):
            found.append(self._sequence(active))
        return either(found)

    def _sequence(self, active: list[str]) -> Node:
        """Read nodes up to a bar or the end of the bracket; `active` are the flags so far."""
        outer: list[list[Node]] = [[] for _ in range(len(active) + 1)]
        while not self.is_at_end and self.peek() not in ("|", ")"):
            flags = self._flags()
            if flags is None:
                outer[-1].append(self._quantified(self._atom()))
            elif flags:
                active.append(flags)
                outer.append([])
        inner = outer.pop()
        for flags in reversed(active):
            inner = [*outer.pop(), *([PatternGroup(flags, concat(*inner))] if inner else [])]
        return concat(*inner) if inner else Concat(())

    def _flags(self) -> str | None:
        """Return the opening for flags such as `(?s)`, "" for those that change nothing here; None without flags."""
        start = self.at
        if not self.accept("(?"):
            return None
        letters = ""
        while self.peek() and self.peek() in "idmsuxU-":
            letters += self.peek()
            self.at += 1
        if not letters or not self.accept(")"):
            self.at = start
            return None
        return _flag_opening(letters)

    def _atom(self) -> Node:
        char, is_quoted = self.tokens[self.at]
        if is_quoted:
            self.at += 1
            return Literal(char)
        if char == "(":
            return self._group()
        self.at += 1
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?{":
            raise PatternError(f"{char} repeats nothing")
        return Symbol(char) if char in ".^$" else Literal(char)

    def _group(self) -> Node:
        self.at += 1
        opening, captures = "(", None
        if self.accept("?"):
            opening, captures = self._opening()
        else:
            captures = object()
            self.groups.append(captures)
        node = self.alternatives()
        if not self.accept(")"):
            raise PatternError("a bracket ( is never closed")
        return PatternGroup(opening, node, captures)

    def _opening(self) -> tuple[str, object | None]:
        for kind in (":", "=", "!", ">", "<=", "<!"):
            if self.accept(kind):
                return f"(?{kind}", None
        if self.accept("<"):
            captures, name = object(), self.until(">")
            if name in self.names:
                raise PatternError(f"two groups are named {name}")
            self.groups.append(captures)
            self.names[name] = captures
            return "(", captures
        return _flag_opening(self.until(":")) or "(?:", None

    def _quantified(self, node: Node) -> Node:
        char = self.peek()
        if not char or char not in "*+?{":
            return node
        self.at += 1
        quantifier = char
        if char == "{":
            inner = self.until("}")
            if not re.fullmatch(r"\d+(,\d*)?", inner, re.ASCII):
                raise PatternError(f"{{{inner}}} is no quantifier")
            quantifier = f"{{{inner}}}"
        if self.peek() and self.peek() in "?+":
            quantifier += self.peek()
            self.at += 1
        if self.peek() and self.peek() in "*+?{":
            raise PatternError(f"{self.peek()} repeats nothing")
        return Repeat(node, quantifier)

    def _escape(self) -> Node:
        char = self._escaped()
        if char.isascii() and char.isdigit() and char != "0":
            return self._again(char)
        if char in "bB":
            return self._boundary(char)
        if char in "AG":
            return Symbol(r"\A")
        if char == "z":
            return END
        if char == "Z":
            return Symbol("$")
        if char == "k" and self.accept("<"):
            name = self.until(">")
            if name not in self.names:
                raise PatternError(f"no group is named {name}")
            return Again(self.names[name])
        found = self._member_escape(char)
        if isinstance(found, str):
            return Literal(found)
        return found

    def _boundary(self, char: str) -> Node:
        if self.peek() == "{":
            raise PatternError(rf"\{char}{{...}} is not translated")
        return Symbol(f"\\{char}")

    def _escaped(self) -> str:
        char = self.peek()
        if not char:
            raise PatternError("a backslash is at the end")
        self.at += 1
        return char

    def _again(self, digits: str) -> Node:
        """Read the number of a group: it has as many digits as there are such groups."""
        while self.peek().isdigit() and int(digits + self.peek()) <= len(self.groups):
            digits += self.peek()
            self.at += 1
        if int(digits) > len(self.groups):
            raise PatternError(f"there is no group {digits} before")
        return Again(self.groups[int(digits) - 1])

    def _member_escape(self, char: str) -> str | Symbol | CharClass:
        """Return the character, or the class, of an escape that may be in a class, too."""
        if char in _SHORT:
            return Symbol(f"\\{char}")
        if char in "hHvV":
            return CharClass(char.isupper(), _BLANKS if char in "hH" else _LINE_ENDS)
        if char in "pP":
            return self._posix(negated=char == "P")
        if char in _CONTROL:
            return _CONTROL[char]
        return self._coded(char) if char in "c0xu" else self._itself(char)

    def _coded(self, char: str) -> str:
        if char == "c":
            return chr(ord(self._escaped()) ^ 64)
        if char == "0":
            return chr(int(self._digits("01234567", 3 if self.peek() in ("0", "1", "2", "3") else 2, least=1), 8))
        if char == "x" and self.accept("{"):
            return chr(int(self.until("}"), 16))
        width = 2 if char == "x" else 4
        return chr(int(self._digits("0123456789abcdefABCDEF", width, least=width), 16))

    @staticmethod
    def _itself(char: str) -> str:
        if char.isascii() and char.isalnum():
            raise PatternError(f"\\{char} is not translated")
        return char

    def _digits(self, allowed: str, most: int, least: int) -> str:
        found = ""
        while len(found) < most and self.peek() and self.peek() in allowed:
            found += self.peek()
            self.at += 1
        if len(found) < least:
            raise PatternError("an escape has too few digits")
        return found

    def _posix(self, *, negated: bool) -> CharClass:
        name = self.until("}") if self.accept("{") else self._escaped()
        if name not in _POSIX:
            raise PatternError(f"\\p{{{name}}} is not translated")
        return CharClass(negated, _POSIX[name])

    def _class(self) -> CharClass:
        """Read a class behind its `[`."""
        negated = self.accept("^")
        operands: list[list[tuple[str, str] | Symbol | CharClass]] = [[]]
        while self.is_at_end or self.peek() != "]" or operands == [[]]:
            if self.is_at_end:
                raise PatternError("a bracket [ is never closed")
            if self.accept("&&"):
                operands.append([])
            elif self.accept("["):
                operands[-1].append(self._class())
            else:
                operands[-1].append(self._member())
        self.at += 1
        if any(not one for one in operands):
            raise PatternError("&& has nothing on one side")
        first, *others = operands
        return CharClass(negated, tuple(first), tuple(CharClass(negated=False, parts=tuple(one)) for one in others))

    def _member(self) -> tuple[str, str] | Symbol | CharClass:
        low = self._member_char()
        if not isinstance(low, str) or self.peek() != "-" or self.peek(1) in ("]", "["):
            return (low, low) if isinstance(low, str) else low
        if self.at + 1 >= len(self.tokens):
            return (low, low)
        self.at += 1
        high = self._member_char()
        if not isinstance(high, str) or high < low:
            raise PatternError(f"{low}-… is no range")
        return (low, high)

    def _member_char(self) -> str | Symbol | CharClass:
        char, is_quoted = self.tokens[self.at]
        self.at += 1
        return self._member_escape(self._escaped()) if char == "\\" and not is_quoted else char


def _flag_opening(letters: str) -> str:
    """Return the opening of a group with flags; "" if they change nothing: case does not count anyway."""
    on, _, off = letters.partition("-")
    if set(on + off) - set("idmsuU"):
        raise PatternError(f"the flags (?{letters}) are not translated")
    ours = "".join(flag for flag in "ms" if flag in on)
    not_ours = "".join(flag for flag in "ims" if flag in off)
    unicode = "u" if {"u", "U"} & set(on) else ""
    return f"(?{unicode}{ours}{'-' if not_ours else ''}{not_ours}:" if ours or not_ours or unicode else ""
