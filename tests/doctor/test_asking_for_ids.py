"""When a transactional id is asked for: only where no broker can take it from a producer that runs. No server is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from kafkaio.cluster_admin import LONGEST_MS
from tidemark.doctor.kafka_rights import not_to_be_asked

SHOWN: Final = ("shop.state", "__transaction_state")
USUAL: Final = 900_000


@pytest.mark.parametrize(
    ("brokers", "limits", "shown", "why"),
    [
        (["1", "2"], {"1": USUAL, "2": LONGEST_MS - 1}, SHOWN, ""),
        (["1", "2"], {"1": USUAL}, SHOWN, "of broker 2 is not known"),
        (["1"], {}, SHOWN, "of broker 1 is not known"),
        (["1", "2"], {"1": USUAL, "2": LONGEST_MS}, SHOWN, f"of broker 2 is {LONGEST_MS}"),
        (["1"], {"1": USUAL}, ("shop.state",), "no topic __transaction_state"),
        ([], {}, SHOWN, "no broker is known"),
    ],
)
def test_an_id_is_asked_for_only_where_every_broker_refuses_the_question(
    brokers: Sequence[str], limits: Mapping[str, int], shown: Sequence[str], why: str
) -> None:
    found = not_to_be_asked(brokers, limits, shown)
    assert why in found
    assert bool(found) == bool(why)
