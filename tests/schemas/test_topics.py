"""Topic names."""

from __future__ import annotations

import re

import pytest

from schemas import topics
from schemas.errors import ConfigError


def test_topics_of_a_table() -> None:
    assert topics.change_topic("shop", "db", "orders") == "shop.db.orders"
    assert topics.snapshot_topic("shop", "db", "orders") == "shop-snapshot.db.orders"
    assert topics.key_subject("shop.db.orders") == "shop.db.orders-key"


def test_characters_kafka_does_not_take_become_underscores() -> None:
    assert topics.change_topic("shop", "d b", "ünï$x") == "shop.d_b._n__x"


def test_the_patterns_tell_change_topics_from_snapshot_topics_and_our_own() -> None:
    change = re.compile(topics.change_topic_pattern("shop"))
    snapshot = re.compile(topics.snapshot_topic_pattern("shop"))
    assert change.fullmatch("shop.db.orders")
    assert not change.fullmatch("shop-snapshot.db.orders")
    assert not change.fullmatch(topics.notifications_topic("shop"))
    assert not change.fullmatch(topics.state_topic("shop"))
    assert snapshot.fullmatch("shop-snapshot.db.orders")
    assert not snapshot.fullmatch("shop.db.orders")


def test_tables_that_would_share_a_topic_are_refused() -> None:
    topics.require_distinct_topics("p", [("db", "a"), ("db", "b"), ("db", "a")])
    with pytest.raises(ConfigError, match=r"db\.a\$b and db\.a#b would share the topic 'p\.db\.a_b'"):
        topics.require_distinct_topics("p", [("db", "a$b"), ("db", "a#b")])


def test_names_too_long_for_kafka_are_refused() -> None:
    with pytest.raises(ConfigError, match="longer than the 249"):
        topics.require_distinct_topics("p", [("d" * 64, "t" * 190)])
