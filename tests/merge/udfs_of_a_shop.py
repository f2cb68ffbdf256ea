"""Python functions as users of transforms write them."""

from __future__ import annotations


def masked(text: str | None) -> str | None:
    """The first letter, and two stars for the rest."""
    return None if text is None else f"{text[:1]}**"


def checked(amount: int | None) -> int | None:
    """An error for one amount, as a user's code raises it."""
    if amount == 3:
        raise ValueError("3 is not an amount of this shop")
    return amount
