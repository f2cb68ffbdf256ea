"""Collation ids: the table agrees with what real servers list."""

from __future__ import annotations

import pytest

from producer.binlog.charsets import charset_of, codec_of, decode_text
from tests.support.servers import database


@pytest.mark.parametrize("name", ["mysql80", "mysql97", "mariadb114"])
def test_every_collation_of_the_server_has_its_character_set(name: str) -> None:
    with database(name).connect() as connection, connection.cursor() as cursor:
        if name.startswith("mariadb"):
            cursor.execute(
                "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            )
        else:
            cursor.execute("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
        listed = {
            int(number): {"utf8": "utf8mb3"}.get(charset, charset) for number, charset in cursor.fetchall()
        }
    assert len(listed) > 200
    assert {number: charset_of(number) for number in listed} == listed


def test_the_server_s_own_list_wins() -> None:
    assert charset_of(255, {255: "latin1"}) == "latin1"
    assert charset_of(46, {255: "latin1"}) == "utf8mb4"
    assert charset_of(900) is None
    assert charset_of(9999) is None


def test_latin1_holds_every_byte() -> None:
    text = decode_text(bytes(range(256)), "latin1")
    assert len(text) == 256
    assert text[0x80] == "€"
    assert text[0x81] == "\x81"
    assert decode_text("ö€".encode(), "utf8mb4") == "ö€"
    assert codec_of("swe7") is None
    with pytest.raises(LookupError):
        decode_text(b"x", "swe7")
