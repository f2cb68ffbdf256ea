"""The words that the glossary forbids, and the files of the repository that use them.

`findings_of_module` and `findings_of_text` are pure: text in, findings out. `docs/glossary.md` says what to write instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Word:
    """A forbidden word: a pattern for the parts of an identifier, one for prose, and what to write instead."""

    name: str
    write: str
    identifier: str = ""
    """Matches the identifier in snake case, between underscores: `held` finds `held_rows`, `is_held`, `HeldRows`."""
    prose: str = ""

    @property
    def in_identifiers(self) -> re.Pattern[str] | None:
        return re.compile(rf"(?:^|_)(?:{self.identifier})(?:_|$)") if self.identifier else None

    @property
    def in_prose(self) -> re.Pattern[str] | None:
        return re.compile(rf"\b(?:{self.prose})\b", re.IGNORECASE) if self.prose else None


_TEXT = r"columns?|files?|documents?|topics?|records?|messages?|rows?|text|strings?|fields?|values?|headers?|keys?"
_THE = r"the|a|an|its|their|each|every|this|that|no|one"

WORDS = (
    Word("border", "transaction boundary", "borders?", "borders?"),
    Word(
        "place",
        "position, offset, coordinates, index",
        "(?!in_place)(?:log_)?places?",
        r"places? (?:in|of) (?:the|a|its|their) (?:log|binlog|file|stream)|log'?s? places?",
    ),
    Word("anew", "restart, start over, again from the start", "anew", r"(?<!--)anew"),
    Word("told", "reported, sent, published, named", "told|tell|tells|telling", "told|tell|tells|telling"),
    Word("stands", "is, has, contains", "stands", r"stands(?! for\b| by\b| still\b)"),
    Word("lies", "is, has, contains", "lies", r"lies"),
    Word("holds", "has, contains", "", rf"(?:{_THE}) (?:{_TEXT}) holds?"),
    Word("whoever", "the consumer that ..., a client that ...", "whoever", "whoever|whomever"),
    Word(
        "low, high",
        "low watermark, high watermark",
        "take_low|low_taken",
        r"(?:the|a|its|their|chunk's) (?:low|high)(?=[.,;:)]|$| (?:is|was|of|and|or|that|where|has))",
    ),
    Word("beats", "heartbeat schedule; wins against", "beats?", "beats?"),
    Word(
        "held",
        "pending, uncommitted, buffered",
        "held",
        r"held(?= (?:rows?|chunks?|transactions?|records?|changes|back|for|until|in memory))|(?:is|are|was|were|be|being|rows|chunks?) held",
    ),
    Word("met", "seen, encountered", "met", r"met(?! by\b)"),
    Word(
        "cut",
        "checkpoint, commit; truncate, split",
        "(?!cut_(?:short|off|over|connections?))cuts?",
        rf"(?:{_THE}|next|last|at|of|between) cuts?(?! (?:off|short|into)\b)",
    ),
    Word(
        "try again",
        "retry",
        "(?:try|tried|tries|begin|begins|begun|connect|ask|asks|asked)_again",
        r"(?:try|tries|tried|trying|tries it|tried it|try it) again",
    ),
    Word(
        "away",
        "unavailable, missing, unreachable",
        "(?:is|are|was|were|kafka|registry|server)_away",
        r"(?:is|are|was|were|be|stays?|been) away",
    ),
    Word("not to be had", "unavailable, missing", "", r"to be had"),
    Word("in words", "explicit error, clear error", "in_words", r"in words"),
    Word(
        "go on",
        "continue, resume",
        "(?:go|goes|went|going|gone)_on",
        r"(?:go|goes|went|going|gone) on(?! (?:the|a|an|its|one|top|every|each)\b)",
    ),
    Word(
        "read on",
        "continue to read",
        "(?:read|reads|reading)_on",
        r"(?:read|reads|reading) on(?=[.,;:)]| (?:from|at|where|after|when|with|until|behind|and|in)\b|$)",
    ),
    Word("for a reason", "with a reason, explained by", "", r"for a reason"),
    Word("by the way of", "by, through", "", r"by the way of"),
    Word(
        "as the contract says",
        "@override instead of the docstring",
        "",
        r"as the (?:contract|protocol|base|interface) (?:says|has it|wants)",
    ),
    Word("sign of life", "liveness record", "sign_of_life|signs_of_life", r"signs? of life"),
    Word("beginning", "resume point", "(?:(?<=^find_)|(?<=^test_)|(?<=^)|(?<=^_))beginning(?=$)", ""),
    Word("take", "the verb that says what is done to the argument", "", ""),
)
TAKE = WORDS[-1]

_TEXTS_OF_CALL = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_STRING_OR_COMMENT = re.compile(
    r"""(?s)[rbfuRBFU]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#(?P<comment>[^\n]*)"""
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CODE_SPAN = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Finding:
    """A forbidden word at a line of a file, with the identifier or the sentence that has it."""

    path: str
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word}: {self.text}"


def findings_of_module(path: str, source: str) -> list[Finding]:
    """Return the forbidden words in a Python module: its name, identifiers, docstrings, comments, messages, log events."""
    found = {
        Finding(path, 1, word.name, name)
        for name in _names_of_path(path)
        for word in _words_in_identifier(name, is_function=False)
    }
    nodes = list(ast.walk(ast.parse(source)))
    for name, line, is_function in _identifiers(nodes):
        found.update(
            Finding(path, line, word.name, name)
            for word in _words_in_identifier(name, is_function=is_function)
        )
    for text, line in (*_docstrings_and_messages(nodes), *_comments(source)):
        found.update(_in_prose(path, text, line))
    return sorted(found, key=lambda finding: (finding.line, finding.word, finding.text))


def findings_of_text(path: str, text: str) -> list[Finding]:
    """Return the forbidden words in a Markdown file; what is code in it (`...`) is not prose."""
    return sorted(
        (
            finding
            for number, line in enumerate(text.splitlines(), 1)
            for finding in _in_prose(path, line, number)
        ),
        key=lambda finding: (finding.line, finding.word),
    )


def _names_of_path(path: str) -> list[str]:
    return [part.removesuffix(".py") for part in path.split("/")]


@cache
def _words_in_identifier(name: str, *, is_function: bool) -> tuple[Word, ...]:
    snake = _CAMEL.sub("_", name).lower()
    found = [word for word, pattern in _IN_IDENTIFIERS if pattern.search(snake)]
    if is_function and re.match(r"_?take(?:_(?!over)|$)", snake):
        found.append(TAKE)
    return tuple(found)


def _in_prose(path: str, text: str, line: int) -> Iterator[Finding]:
    text = _without_code(text)
    if not _ANY_IN_PROSE.search(text):
        return
    joined = re.sub(r"\s", " ", text)
    for word, pattern in _IN_PROSE:
        for match in pattern.finditer(joined):
            where = line + text.count("\n", 0, match.start())
            sentence = joined[max(match.start() - 40, 0) : match.end() + 40].strip()
            yield Finding(path, where, word.name, re.sub(" +", " ", sentence))


def _identifiers(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int, bool]]:
    """Each name that the module gives, its line, and whether it is that of a function."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno, True
            case ast.ClassDef():
                yield node.name, node.lineno, False
            case ast.arg():
                yield node.arg, node.lineno, False
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno, False
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno, False
            case ast.alias(asname=str() as name):
                yield name, node.lineno, False
            case ast.ExceptHandler(name=str() as name):
                yield name, node.lineno, False
            case ast.Call(func=ast.Attribute(attr=method)) if method in _TEXTS_OF_CALL:
                yield from (
                    (keyword.arg, keyword.value.lineno, False) for keyword in node.keywords if keyword.arg
                )
                for argument in node.args[:1]:
                    if (
                        isinstance(argument, ast.Constant)
                        and isinstance(argument.value, str)
                        and " " not in argument.value
                    ):
                        yield argument.value.replace(".", "_"), argument.lineno, False


def _docstrings_and_messages(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Return each docstring, and each other string that is a sentence: three words or more, and no SQL."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield text, node.lineno
            case ast.Constant(value=str() as text) if _is_prose(text):
                yield text, node.lineno


def prose_of_module(source: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each docstring, message and comment of a module with its first line; the text of code spans is blank."""
    for text, line in dict.fromkeys((*_docstrings_and_messages(ast.walk(tree)), *_comments(source))):
        yield _without_code(text), line


def prose_of_text(text: str) -> Iterator[tuple[str, int]]:
    """Yield a Markdown file as one text; code spans and code blocks are blank."""
    lines = ("" if line.startswith("    ") else line for line in text.splitlines())
    yield _without_code("\n".join(lines)), 1


def _without_code(text: str) -> str:
    return _CODE_SPAN.sub(lambda span: "`" + "." * (len(span[0]) - 2) + "`", text)


def _is_prose(text: str) -> bool:
    return text.count(" ") >= 2 and not re.match(r"\s*(?:[A-Z]{2,} |--|[{\[(<])", text)


def _comments(source: str) -> Iterator[tuple[str, int]]:
    for match in _STRING_OR_COMMENT.finditer(source):
        if match["comment"]:
            yield match["comment"], source.count("\n", 0, match.start()) + 1


def duplicate_names(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the modules that share their file's name with another one."""
    by_name: dict[str, list[str]] = {}
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        if name not in {"__init__.py", "__main__.py", "conftest.py"}:
            by_name.setdefault(name, []).append(path)
    return {name: sorted(found) for name, found in sorted(by_name.items()) if len(found) > 1}


_IN_IDENTIFIERS = [(word, pattern) for word in WORDS if (pattern := word.in_identifiers)]
_IN_PROSE = [(word, pattern) for word in WORDS if (pattern := word.in_prose)]
_ANY_IN_PROSE = re.compile(
    "|".join(re.sub(r"(?<!\\) ", r"\\s", f"(?:{pattern.pattern})") for _, pattern in _IN_PROSE), re.IGNORECASE
)
