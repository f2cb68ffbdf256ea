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


def test_the_patterns_distinguish_change_topics_from_snapshot_topics_and_our_own() -> None:
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


def test_tables_that_would_share_a_name_are_refused_where_their_topics_differ() -> None:
    twins = [("a.b", "c"), ("a", "b.c")]
    assert not {topics.change_topic("p", *twins[0], "__")} & {topics.change_topic("p", *twins[1], "__")}
    found = topics.without_topics("p", [*twins, ("a", "d")], "__")
    assert list(found) == [("a", "b.c")]
    assert "tables `a.b`.c and a.`b.c` would both be called a.b.c" in found["a", "b.c"]
    with pytest.raises(ConfigError, match=r"tables `a\.b`\.c and a\.`b\.c` would share the topic 'p\.a\.b\.c'"):
        topics.require_distinct_topics("p", twins)


def test_another_delimiter_is_in_every_name_as_debezium_puts_it() -> None:
    assert topics.change_topic("shop", "my_db", "a$b", "_") == "shop_my_db_a_b"
    assert topics.snapshot_topic("shop", "db", "orders", "-") == "shop-snapshot-db-orders"
    assert topics.transaction_topic("shop", "_") == "shop_transaction"
    assert topics.heartbeat_topic("shop", "_") == "__debezium-heartbeat_shop"
    assert topics.notifications_topic("shop", "_") == "shop_notifications"
    assert topics.state_topic("shop", "_") == "shop_state"
    assert topics.schema_change_topic("shop") == "shop"


def test_patterns_with_another_delimiter_find_tables_and_no_other_topic_of_ours() -> None:
    change = re.compile(topics.change_topic_pattern("shop", "_"))
    snapshot = re.compile(topics.snapshot_topic_pattern("shop", "_"))
    assert change.fullmatch(topics.change_topic("shop", "my_db", "t", "_"))
    assert snapshot.fullmatch(topics.snapshot_topic("shop", "my_db", "t", "_"))
    assert not change.fullmatch(topics.snapshot_topic("shop", "db", "t", "_"))
    for name in (topics.notifications_topic, topics.state_topic, topics.transaction_topic):
        assert not change.fullmatch(name("shop", "_"))
    assert not change.fullmatch(topics.schema_change_topic("shop"))


def test_tables_that_only_this_delimiter_confuses_are_refused_in_its_words() -> None:
    tables = [("my", "db_t"), ("my_db", "t")]
    with pytest.raises(ConfigError, match=r"topics Kafka takes for one, 'p\.my\.db_t' and 'p\.my_db\.t'"):
        topics.require_distinct_topics("p", tables)
    with pytest.raises(ConfigError, match=r"my\.db_t and my_db\.t .* 'p_my_db_t'.*kafka\.topic_delimiter"):
        topics.require_distinct_topics("p", tables, "_")


def test_names_too_long_for_kafka_are_refused() -> None:
    with pytest.raises(ConfigError, match="longer than the 249"):
        topics.require_distinct_topics("p", [("d" * 64, "t" * 190)])
