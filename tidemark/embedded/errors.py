"""Errors of the embedded servers."""

from __future__ import annotations

from schemas.errors import TidemarkError


class EmbeddedError(TidemarkError):
    """A server or one of its files cannot be had on this machine; the message says what to do."""


class ArtifactError(EmbeddedError):
    """A file could not be fetched, or what came is not what `artifacts.lock` expects."""


class ServerStartError(EmbeddedError):
    """A server ended or stayed silent while it was being started; carries the end of its log."""
