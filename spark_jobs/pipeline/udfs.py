"""Python functions for expressions of transforms: settings enter, functions that a session knows leave."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import ConfigError, result_or_error
from schemas.settings import UdfSettings
from spark_jobs.spark_errors import reason_of


def register_udfs(spark: SparkSession, udfs: Sequence[UdfSettings]) -> None:
    """Make functions known to a session; `ConfigError`, with the path of the key, for one that cannot be had.

    Their modules go to the executors with them: they need not be installed there.
    """
    for number, udf in enumerate(udfs):
        function = _function(f"udfs.{number}.function", udf.function)
        try:
            kind = T.DataType.fromDDL(udf.returns)
        except PySparkException:
            message = f"udfs.{number}.returns: {udf.returns!r} is no type of Spark SQL"
            raise ConfigError(message) from None
        done = result_or_error(partial(spark.udf.register, udf.name, _named(udf.name, function), kind))
        if isinstance(done, Exception):  # of pickling, which runs code of the module
            message = f"udfs.{number}.function: {udf.function!r} cannot be sent to workers: {reason_of(done)}"
            raise ConfigError(message) from done


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with errors that name it: Spark reports a Python error without the function that raised it.

    The result is pickled by value, and so needs nothing of this module where it runs.
    """

    def named(*values: Any) -> Any:
        try:
            return function(*values)
        except Exception as error:  # the code of the user raises errors of every kind
            message = f"[UDF_FAILED] the function {name} raised {type(error).__name__}: {error}"
            raise RuntimeError(message) from error

    return named


def udf_sources(udfs: Sequence[UdfSettings]) -> list[tuple[str, str, str, str]]:
    """Return name, function and type of each function, and the text of the module that it is in, as far as it has one.

    `ConfigError` for one that cannot be had.
    """
    found: list[tuple[str, str, str, str]] = []
    for number, udf in enumerate(udfs):
        _function(f"udfs.{number}.function", udf.function)
        try:
            text = _text_of(sys.modules[udf.function.partition(":")[0]])
        except OSError as error:
            raise ConfigError(f"udfs.{number}.function: the module of {udf.function!r} cannot be read: {error}") from error
        found.append((udf.name, udf.function, udf.returns, text))
    return found


def _text_of(module: ModuleType) -> str:
    """Return the content of a module's file, which may be in a zip."""
    file, loader = str(module.__file__), getattr(module, "__loader__", None)
    content: bytes = Path(file).read_bytes() if loader is None else loader.get_data(file)
    return content.hex()


def _function(path: str, name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    module = result_or_error(partial(importlib.import_module, module_name))  # which runs code of the user
    if isinstance(module, Exception):
        message = f"{path}: the module {module_name!r} cannot be imported: {module}"
        raise ConfigError(message) from module
    function = getattr(module, attribute, None)
    if not callable(function):
        message = f"{path}: the module {module_name!r} has no function {attribute!r}"
        raise ConfigError(message)
    if getattr(module, "__file__", None) is None:  # pickled by value, it would take all of Python with it
        message = f"{path}: {module_name!r} is built into Python: name a function of a module of your own, which calls it"
        raise ConfigError(message)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found: Callable[..., Any] = function
    return found
