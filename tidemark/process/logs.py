"""Where logs go: standard error, one event a line, text for people and JSON for machines."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Final, TextIO, cast

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
FORMS: Final = ("auto", "text", "json")
_processors: list[Any] = []  # the same list for ever: a logger that is kept keeps its list


def _for_people() -> Any:
    """Plain tracebacks: those of rich show the local variables, which hold rows and passwords."""
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


class _StandardError:
    """Standard error as it is at each line: loggers are kept, and who embeds the command may redirect it.

    A line that cannot be written is lost: a full disk under the log must not end what is logged about.
    """

    @staticmethod
    def write(text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    @staticmethod
    def flush() -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def configure(*, level: str = "info", form: str = "auto") -> None:
    """Set up structlog and the standard library's logging, once per process."""
    number = logging.getLevelNamesMapping()[level.upper()]
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if as_text:
        renderers: list[Any] = [_for_people()]
    else:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    _processors[:] = [*shared, *renderers]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s")
