"""The Python function of the pipeline demo."""

from __future__ import annotations


def masked(address: str | None) -> str | None:
    """Return an e-mail address without the name: `m***@example.org`. NULL stays NULL."""
    if address is None:
        return None
    name, at, domain = address.partition("@")
    return f"{name[:1]}***{at}{domain}"
