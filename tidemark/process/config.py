"""Where the settings come from: one YAML file, environment variables laid over it, secrets in files.

This is the only place below the command line that looks at the environment. Every key is also a variable:
`TIDEMARK_SOURCE__HOST` is `source.host`, `TIDEMARK_SINKS__0__PATH` the path of the first sink. Lists are
JSON or separated by commas, mappings are JSON.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from yaml.composer import ComposerError

from schemas import settings as tree
from schemas.errors import ConfigError
from schemas.overriding import override
from schemas.secrets import secret_of
from schemas.settings import Settings, TaskSettings, text_forms, why_no_merge

PREFIX = "TIDEMARK_"
DEFAULT_PATH = "tidemark.yaml"
_Tree = TypeVar("_Tree", Settings, TaskSettings)
_TOP_LEVEL = tuple(Settings.__dataclass_fields__)
# A text without quotes that begins with * or ! is a name to YAML, which then shows it.
_NAMES: Final = re.compile(r"\b(alias|tag|handle) ['\"].*", re.DOTALL)
_URI: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
_ADDRESS: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_PEM_FILES: Final = ("ca", "cert", "key")
_QUOTES: Final = r"\1: a text that begins with * or ! needs quotes"


class _Loader(yaml.SafeLoader):
    """YAML in which a key occurs once: else the last one would win, and the others would be lost silently."""

    @override
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """As the base class, which refuses nothing."""
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise ComposerError(None, None, "found a key for the second time", key.start_mark)
                seen.add(key.value)
        return node


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Load the settings of a YAML file with the environment laid over it; secrets that have files stay in them.

    Raises `ConfigError` when the file cannot be read or parsed, when a key is unknown, and when a value is
    not of the key's type: one error with everything that is wrong. No message contains a password.
    """
    return _load(path, environment, Settings, tree.from_mapping, "name the file with --config, the README has an example")


def load_task(path: str | Path, environment: Mapping[str, str] | None = None) -> TaskSettings:
    """Load the settings of a task as `load` does; variables that only a producer has are ignored."""
    return _load(path, environment, TaskSettings, tree.task_from_mapping, "`tidemark config reference --task` prints the keys")


def _load(
    path: str | Path,
    environment: Mapping[str, str] | None,
    kind: type[_Tree],
    from_mapping: Callable[[Mapping[str, object]], _Tree],
    remedy: str,
) -> _Tree:
    mapping = _read_yaml(Path(path), remedy)
    problems = tree.Problems()
    with problems.noted():
        overlay(mapping, os.environ if environment is None else environment, kind)
    with problems.noted():
        _resolve_files(mapping, Path(path).parent, kind)
    with problems.noted():
        settings = from_mapping(mapping)
    problems.raise_all()
    return settings


def problems_of_file(path: str | Path, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return everything that is wrong with a file and the environment laid over it, each as a start would say it."""
    try:
        settings = load(path, environment)
    except ConfigError as error:
        return error.problems
    problems = list(why_no_merge(settings)) if settings.sinks else []
    if reason := text_forms.spark_master(settings.spark.master):
        problems.append(f"spark.master: {reason}")
    return tuple(problems)


def overlay(mapping: dict[str, object], environment: Mapping[str, str], kind: type = Settings) -> None:
    """Lay the `TIDEMARK_*` variables that are settings over a mapping, in place.

    A variable without `__` is a setting only when it names a top-level key: `TIDEMARK_CACHE` and the like
    belong to the process. One that nearly names a top-level key is refused, as it is a slip of the pen.
    A tree of another kind ignores variables of the producer's keys that it does not have.
    Raises one `ConfigError` with every variable that is wrong.
    """
    problems = tree.Problems()
    known = [item.name for item in fields(kind)]
    for variable in sorted(environment):
        keys = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        if not variable.startswith(PREFIX) or (keys[0] in _TOP_LEVEL and keys[0] not in known):
            continue
        with problems.noted():
            if len(keys) == 1 and keys[0] not in known:
                _refuse_near_miss(variable, keys[0], known)
                continue
            try:
                _put(mapping, keys, tree.parse_text(keys, environment[variable], kind))
            except ConfigError as error:
                raise ConfigError(f"environment variable {variable}: {error}") from None
    problems.raise_all()


def _read_yaml(path: Path, remedy: str) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {path}: {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from None
    try:
        loaded = yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the latter two: a date of no calendar, too deep
        raise ConfigError(f"{path} is not YAML: {_without_excerpt(error)}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top")
    return loaded


def _without_excerpt(error: Exception) -> str:
    """Return what is wrong and where, without the line itself, which may hold a password."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _NAMES.sub(_QUOTES, error.problem or "")
        return f"{problem}, line {mark.line + 1}, column {mark.column + 1}"
    return "unreadable"


def _refuse_near_miss(variable: str, key: str, known: Sequence[str]) -> None:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    if close:
        raise ConfigError(f"environment variable {variable}: did you mean {PREFIX}{close[0].upper()}?")


def _put(mapping: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    """Set a value in nested mappings; a number is the place in a list, or the next one."""
    node: object = mapping
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdecimal():
                raise ConfigError(f"the file has a list at {'.'.join(keys[:depth])}, {key!r} is no place in it")
            index = int(key)
            if index > len(node):
                raise ConfigError(f"the list has {len(node)} entries, there is no place {index}")
            if index == len(node):
                node.append({})
            if last:
                node[index] = value
            node = node[index]
        elif isinstance(node, dict):
            if last:
                node[key] = value
                return
            if node.get(key) is None:
                node[key] = [] if keys[depth + 1].isdecimal() else {}
            node = node[key]
        else:
            raise ConfigError(f"the file has a plain value at {'.'.join(keys[:depth])}")


def _resolve_files(mapping: dict[str, object], folder: Path, kind: type) -> None:
    """Have names of files and folders begin at the YAML file's folder, and refuse a secret's file that cannot be read.

    The files are read when they are needed, so that a rotated secret holds without a restart.
    """
    problems = tree.Problems()
    for path in sorted(tree.file_keys(kind)):
        *parents, key = path.split(".")
        node: object = mapping
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        if isinstance(node, dict) and isinstance(node.get(key), str):
            with problems.noted():
                _resolve_file(node, key, path, folder)
    sinks = mapping.get("sinks")
    for number, sink in enumerate(sinks if isinstance(sinks, list) else ()):
        for key in ("path", "work", "password_file") if isinstance(sink, dict) else ():
            if isinstance(value := sink.get(key), str) and value.strip() and not _URI.match(value):
                with problems.noted():
                    sink[key] = _absolute(value, f"sinks.{number}.{key}", folder)
        if isinstance(sink, dict) and isinstance(sink.get("password_file"), str) and not sink.get("password"):
            with problems.noted():
                secret_of("", sink["password_file"], f"sinks.{number}.password_file")
    problems.raise_all()


def _resolve_file(section: dict[str, Any], key: str, path: str, folder: Path) -> None:
    if _ADDRESS.match(section[key]):
        raise ConfigError(f"{path}: is a file of this machine, not a URI; got {section[key].partition('://')[0]}://...")
    section[key] = file = _absolute(section[key], path, folder)
    if key in _PEM_FILES:
        _require_readable(path, file)
    if key.endswith("_file") and not section.get(key.removesuffix("_file")):  # both: the settings tree says so
        secret_of("", file, path)


def _absolute(value: str, path: str, folder: Path) -> str:
    """Return a path that begins at the YAML file's folder; `ConfigError` for a text that is no path."""
    if reason := text_forms.path(value):
        raise ConfigError(f"{path}: {reason}")
    return str((folder / value).absolute())


def _require_readable(path: str, file: str) -> None:
    """Refuse a file that cannot be read now (`ConfigError`)."""
    try:
        with Path(file).open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read {file}: {error.strerror}") from None


def patterns_of(texts: Iterable[str], flags: int = 0) -> list[re.Pattern[str]]:
    """Return the regular expressions of an argument; raises `ConfigError` with the first text that is none."""
    try:
        return [re.compile(text, flags) for text in texts]
    except re.error as error:
        raise ConfigError(f"{error.pattern!r} is no regular expression: {error}") from None


def forget_secrets() -> None:
    """Take the variables that hold secrets out of this process's environment: its children need none of them.

    A section in one variable (`TIDEMARK_KAFKA__SASL='{...}'`) may hold some.
    """
    secrets = {secret.replace("[]", "") for secret in tree.secret_keys() | tree.secret_keys(TaskSettings)}
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        keys = variable.removeprefix(PREFIX).lower().split("__")
        path = ".".join(key for key in keys if not key.isdigit())  # without places in lists
        if any(f"{path}.".startswith(f"{secret}.") or secret.startswith(f"{path}.") for secret in secrets):
            del os.environ[variable]
