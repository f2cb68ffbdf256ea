"""Secrets in files of their own, read when they are needed: a rotated one is used at the next connection."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import SecretError


def secret_of(value: str, file: str | None, setting: str) -> str:
    """Return the first line of `file`, or `value` where no file is named; no message has it.

    Raises `SecretError`, which names the `setting`, for a file that cannot be read, or whose first line is empty.
    """
    if file is None:
        return value
    try:
        secret = Path(file).read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        message = f"{setting}: cannot read {file}: {reason}"
        raise SecretError(message) from None
    if not secret:
        message = f"{setting}: the first line of {file} is empty"
        raise SecretError(message)
    return secret


def pem_of(file: str, setting: str) -> str:
    """Return the text of a file of certificates or of a key; `SecretError` as above."""
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no PEM text"
        message = f"{setting}: cannot read {file}: {reason}"
        raise SecretError(message) from None
