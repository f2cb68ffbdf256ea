"""The YAML of a Flink CDC pipeline as its keys: text enters, one value per key leaves. No key is lost.

A key is the path to a value, `source.hostname` or `route.0.sink-table`; a mapping inside of a section is read as Flink CDC reads
it: its keys are joined by dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from schemas.errors import ConfigError
from schemas.overriding import override


class _Loader(yaml.SafeLoader):
    """A loader that refuses a key that is given twice: YAML's own takes the last one in silence."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                message = f"{key.value} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_pipeline(text: str, name: str) -> dict[str, Any]:
    """Return the values of a pipeline by their keys, in the order of the file; lists of scalars are values.

    Raises `ConfigError` for a text that is no pipeline: no YAML, a key given twice, or no source.
    """
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("source"), Mapping):
        found = ", ".join(map(str, document)) if isinstance(document, Mapping) else type(document).__name__
        message = f"{name} is no Flink CDC pipeline: that has a section source, with a section sink; found {found or 'nothing'}"
        raise ConfigError(message)
    return dict(_leaves("", document))


def _leaves(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), value)
    elif isinstance(node, list) and any(isinstance(item, (Mapping, list)) for item in node):
        for number, item in enumerate(node):
            yield from _leaves(f"{path}.{number}", item)
    else:
        yield path, node
