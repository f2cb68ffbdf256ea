r"""Java's regular expressions as trees: a text enters, a tree leaves; trees are put together; Python's text leaves. Pure.

Debezium matches whole names with `java.util.regex` (`CASE_INSENSITIVE`), our settings with Python's `re` (`IGNORECASE`). Patterns
are put together as trees, which `java_pattern_reader` makes. The writer groups by precedence: alternatives stay in their pattern.

Not translated, and refused by `PatternError`: `(?x)`, `\p{...}` but the POSIX classes, `\R`, `\X`, `\N{...}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final


class PatternError(ValueError):
    """A text that is no regular expression of Java, or one that Python cannot match alike."""


@dataclass(frozen=True, slots=True)
class Literal:
    """One character."""

    char: str


@dataclass(frozen=True, slots=True)
class Symbol:
    r"""A part that Python writes alike: `.`, `\w`, `\b`, `^`, a flag group, …"""

    text: str


@dataclass(frozen=True, slots=True)
class CharClass:
    """A character class: `parts` are ranges, symbols and nested classes; a character must also be in each class of `also`."""

    negated: bool
    parts: tuple[tuple[str, str] | Symbol | CharClass, ...]
    also: tuple[CharClass, ...] = ()


@dataclass(frozen=True, slots=True)
class Concat:
    """Nodes after each other."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Alternatives."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PatternGroup:
    """A bracket: `opening` is Python's, for example `(?:` or `(?!`; one that captures has a number or name of its own."""

    opening: str
    node: Node
    captures: object | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """A back reference."""

    captures: object


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node and its quantifier."""

    node: Node
    quantifier: str


Node = Literal | Symbol | CharClass | Concat | Either | PatternGroup | Again | Repeat

ANY: Final = Symbol(".")
END: Final = Symbol(r"\Z")
DOT: Final = Literal(".")
_AHEAD: Final = ("(?=", "(?!", "(?<=", "(?<!")
_SPECIAL: Final = frozenset(".^$*+?{}[]|()\\")
_SPECIAL_IN_CLASS: Final = frozenset("\\]^[-&~|")
_UNICODE: Final = re.compile(r"\\[wWdDsSbB]|[^\x00-\x7f]")


# ── putting trees together ────────────────────


def concat(*nodes: Node) -> Node:
    """Return nodes after each other."""
    return nodes[0] if len(nodes) == 1 else Concat(nodes)


def either(nodes: Iterable[Node]) -> Node:
    """Return alternatives."""
    found = tuple(nodes)
    return found[0] if len(found) == 1 else Either(found)


def ahead(node: Node) -> Node:
    """Return the condition that a node follows."""
    return PatternGroup("(?=", node)


def never_ahead(node: Node) -> Node:
    """Return the condition that a node does not follow."""
    return PatternGroup("(?!", node)


def of_database(node: Node, *, crossing: bool) -> Node:
    r"""Return a pattern of a database's name as a part of one of `database.table`, before the dot.

    There, the end (`$`) is where a dot follows, and a look-ahead does not see the table. Nor does any other part that matches many
    characters, without `crossing`. A dot that is written (`\.`) stays: it is in the database's name.
    """
    if isinstance(node, Symbol):
        if node.text in ("$", r"\Z"):
            return ahead(DOT)
        if node.text == ".":
            return node if crossing else CharClass(negated=True, parts=((".", "."),))
        return node if crossing or node.text not in (r"\W", r"\D", r"\S") else Concat((never_ahead(DOT), node))
    if isinstance(node, CharClass):
        return node if crossing or not _is_wide(node) else Concat((never_ahead(DOT), node))
    if isinstance(node, (Concat, Either)):
        return type(node)(tuple(of_database(one, crossing=crossing) for one in node.nodes))
    if isinstance(node, PatternGroup):
        return replace(node, node=of_database(node.node, crossing=crossing and node.opening not in _AHEAD))
    if isinstance(node, Repeat):
        return replace(node, node=of_database(node.node, crossing=crossing))
    return node


def _is_wide(node: CharClass) -> bool:
    """Return whether a class may match a dot that it does not name."""
    wide = any(isinstance(part, (Symbol, CharClass)) or (part[0] != part[1] and part[0] <= "." <= part[1]) for part in node.parts)
    return node.negated or wide


def plain_text(node: Node) -> str | None:
    """Return the only text that a pattern matches; None if it matches several."""
    if isinstance(node, Literal):
        return node.char
    if isinstance(node, Concat):
        texts = [plain_text(one) for one in node.nodes]
        return None if None in texts else "".join(text for text in texts if text is not None)
    return None


# ── writing ────────────────────


def written(node: Node) -> str:
    """Return a pattern as Python has it; `PatternError` if Python cannot match it."""
    text = _Writer(node).text(node)
    if _UNICODE.search(text):  # Java: only ASCII is alike in upper and lower case, a digit, a letter of a word, a space
        text = f"(?a:{text})"
    try:
        re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise PatternError(f"Python cannot match it: {error}") from None
    return text


class _Writer:
    """Writes trees. Groups have names of their own if any part refers back to one: their numbers change where patterns meet."""

    def __init__(self, root: Node) -> None:
        self._names: dict[object, str] = {}
        self._refers = _refers(root)
        self._groups = 0
        self._repeats = 0

    def text(self, node: Node) -> str:
        if isinstance(node, Literal):
            return _char(node.char, _SPECIAL)
        if isinstance(node, Symbol):
            return node.text
        if isinstance(node, CharClass):
            return _class_text(node)
        if isinstance(node, Concat):
            return "".join(f"(?:{self.text(one)})" if isinstance(one, Either) else self.text(one) for one in node.nodes)
        if isinstance(node, Either):
            return "|".join(self.text(one) for one in node.nodes)
        if isinstance(node, Again):
            return self._again(node)
        if isinstance(node, PatternGroup):
            return self._group(node)
        self._repeats += 1
        inner = self.text(node.node)
        self._repeats -= 1
        return f"{inner}{node.quantifier}" if _is_atom(node.node) else f"(?:{inner}){node.quantifier}"

    def _again(self, node: Again) -> str:
        """Write a back reference. One within its own group matches nothing in Java, unless the group is repeated."""
        if node.captures in self._names:
            return f"(?P={self._names[node.captures]})"
        if self._repeats:
            raise PatternError("a back reference within its own group, which is repeated, is not translated")
        return "(?!)"

    def _group(self, node: PatternGroup) -> str:
        if node.captures is None or not self._refers:
            return f"{node.opening}{self.text(node.node)})"
        self._groups += 1
        name = f"g{self._groups}"
        inner = self.text(node.node)
        self._names[node.captures] = name
        return f"(?P<{name}>{inner})"


def _refers(node: Node) -> bool:
    if isinstance(node, (Concat, Either)):
        return any(map(_refers, node.nodes))
    return isinstance(node, Again) or (isinstance(node, (PatternGroup, Repeat)) and _refers(node.node))


def _is_atom(node: Node) -> bool:
    return not isinstance(node, (Concat, Either, Repeat))


def _char(char: str, special: frozenset[str]) -> str:
    if char in special:
        return f"\\{char}"
    return char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) > 0xFF else f"\\x{ord(char):02x}"


def _class_text(node: CharClass) -> str:
    simple = [part for part in node.parts if not isinstance(part, CharClass)]
    nested = [_class_text(part) for part in node.parts if isinstance(part, CharClass)]
    if not nested and not node.also:
        return f"[{'^' if node.negated else ''}{_members(simple)}]"
    union = [*([f"[{_members(simple)}]"] if simple else []), *nested]
    both = "".join([*(f"(?={_class_text(one)})" for one in node.also), union[0] if len(union) == 1 else f"(?:{'|'.join(union)})"])
    return f"(?:(?!{both})[\\s\\S])" if node.negated else f"(?:{both})"


def _members(parts: Sequence[tuple[str, str] | Symbol]) -> str:
    found = []
    for part in parts:
        if isinstance(part, Symbol):
            found.append(part.text)
        else:
            low, high = (_char(one, _SPECIAL_IN_CLASS) for one in part)
            found.append(low if low == high else f"{low}-{high}")
    return "".join(found)
