"""Which grants show the text of stored functions."""

from __future__ import annotations

import pytest

from mysqlio.server_facts import grants_of
from producer.source.object_rights import sees_routines


@pytest.mark.parametrize(
    ("grant", "is_seen"),
    [
        ("SELECT ON `mysql`.`proc`", True),
        ("SELECT ON `mysql`.*", True),
        ("ALL PRIVILEGES ON `mysql`.*", True),
        ("ALL PRIVILEGES ON `mysql`.`proc`", True),
        ("ALL PRIVILEGES ON `shop`.*", False),
        ("INSERT ON `mysql`.`proc`", False),
    ],
)
def test_each_right_that_has_select_in_it_shows_functions(grant: str, is_seen: bool) -> None:
    grants = grants_of([f"GRANT {grant} TO `us`@`%`"])
    assert sees_routines(grants, "SELECT ON mysql.proc") == is_seen
