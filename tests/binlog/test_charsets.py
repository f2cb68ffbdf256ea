"""Collation ids: the table agrees with what real servers list."""

from __future__ import annotations

from typing import Any

import pytest

from rowcodec.charsets import charset_of, codec_of, decode_text
from schemas.charset_tables import MULTI_BYTE, SINGLE_BYTE, UNICODE
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
    assert codec_of("klingon") is None
    with pytest.raises(LookupError):
        decode_text(b"x", "klingon")


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_every_code_reads_as_the_server_converts_it(name: str) -> None:
    with database(name).connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute("SHOW CHARACTER SET")
        listed = {str(row[0]) for row in cursor.fetchall()} - UNICODE.keys() - {"binary"}
        assert listed <= SINGLE_BYTE.keys() | MULTI_BYTE.keys()
        cursor.execute(f"CREATE TEMPORARY TABLE {TABLE} (code VARBINARY(4))")
        for first in range(0, len(CODES), 5000):
            values = ",".join(f"(x'{code.hex()}')" for code in CODES[first : first + 5000])
            cursor.execute(f"INSERT INTO {TABLE} VALUES {values}")
        for charset in sorted(listed):
            assert read_otherwise(cursor, charset) == [], charset
        cursor.execute(f"DROP TEMPORARY TABLE {TABLE}")


TABLE = "mysql.tidemark_codes"
# One, two and three bytes, and the four bytes of GB18030 that are in use.
CODES = [bytes([one]) for one in range(256)]
CODES += [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
CODES += [bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
CODES += [
    bytes([a, b, c, d])
    for a in (0x81, 0x82, 0x83, 0x84, 0x90, 0xE3)
    for b in range(0x30, 0x3A)
    for c in range(0x81, 0xFF)
    for d in range(0x30, 0x3A)
]


def read_otherwise(cursor: Any, charset: str) -> list[tuple[str, str, str]]:
    """Codes, well-formed to the server, that we read otherwise than it does: (code, server's text, ours)."""
    text = f"CONVERT(code USING {charset})"
    cursor.execute(f"SELECT HEX(code), HEX(CONVERT({text} USING utf8mb4)), HEX({text}) FROM {TABLE}")
    found = []
    for code, reported, kept in cursor.fetchall():
        if code != kept or code == "8EA0":  # malformed: no column can have it; 8EA0 becomes two question marks
            continue
        text = bytes.fromhex(reported).decode()
        ours = decode_text(bytes.fromhex(code), charset)
        if text and ours != text:
            found.append((code, text, ours))
    return found
