"""Binary JSON trees and diffs, without a server."""

from __future__ import annotations

import random

import pytest

from producer.binlog.json_document import Scalar, parse_document, write_document
from producer.binlog.partial_json import apply_diffs, parse_path
from schemas.errors import DecodeError

SEED = 20261122
ONE = Scalar(5, b"\x01\x00")
TEXT = Scalar(12, b"\x03abc")
TREE = {b"b": [ONE, TEXT, {b"": Scalar(4, b"\x00")}], b"aa": Scalar(11, bytes(8)), b"a": Scalar(15, b"\xf6\x02\x05\x01")}


def diff(operation: int, path: str, value: object = None) -> bytes:
    text = path.encode()
    data = bytes((operation, len(text))) + text
    if value is None:
        return data
    document = write_document(value)  # type: ignore[arg-type]
    return data + bytes((len(document),)) + document


def changed(*diffs: bytes) -> object:
    return parse_document(apply_diffs(write_document(TREE), b"".join(diffs)))


def test_a_tree_comes_back_as_it_was_written_with_keys_in_the_order_of_mysql() -> None:
    found = parse_document(write_document(TREE))
    assert found == TREE
    assert list(found) == [b"a", b"b", b"aa"]
    small = bytes((2, 1, 0, 8, 0, 5, 7, 0))  # the small form of [7]
    assert parse_document(small) == [Scalar(5, b"\x07\x00")]


def test_diffs_replace_insert_and_remove_in_order() -> None:
    assert changed(diff(0, "$.aa", ONE), diff(2, "$.b[0]"), diff(1, "$.b[9]", ONE)) == {
        **TREE, b"aa": ONE, b"b": [TEXT, TREE[b"b"][2], ONE],
    }  # fmt: skip
    assert changed(diff(1, "$.b[0]", TEXT), diff(1, "$.new", [ONE]), diff(2, "$.a")) == {
        b"b": [TEXT, *TREE[b"b"]], b"aa": TREE[b"aa"], b"new": [ONE],
    }  # fmt: skip
    ends = changed(diff(0, "$.b[last]", ONE), diff(2, "$.b[last-2]"), diff(1, "$.b[last-7]", TEXT))
    assert ends[b"b"] == [TEXT, TEXT, ONE]  # type: ignore[index]
    assert changed(diff(0, '$.b[2].""', ONE), diff(2, "$.b[1]"))[b"b"] == [ONE, {b"": ONE}]  # type: ignore[index]
    assert apply_diffs(b"\x04\x00", b"") == b"\x04\x00"


@pytest.mark.parametrize(
    "wrong",
    [
        diff(0, "$.none", ONE), diff(2, "$.b[3]"), diff(1, "$.a", ONE), diff(1, "$.a[0]", ONE), diff(2, "$"),
        diff(0, "$.b.x", ONE), diff(0, "$.aa[0]", ONE), diff(3, "$.a", ONE), diff(0, "$**.a", ONE), diff(0, "a", ONE),
        diff(0, "$.a", ONE)[:-1], diff(2, "$.b[last-3]"), diff(0, "$.b[last+1]", ONE),
    ],
)  # fmt: skip
def test_a_diff_that_does_not_fit_is_an_error(wrong: bytes) -> None:
    with pytest.raises(DecodeError):
        changed(wrong)
    with pytest.raises(DecodeError, match="NULL"):
        apply_diffs(None, b"")


def test_paths_are_read_as_the_server_writes_them() -> None:
    assert parse_path(b"$") == ()
    assert parse_path(b'$.a[3]."b c".\xc3\xa9') == (b"a", 3, b"b c", "\u00e9".encode())
    assert parse_path(b"$[last].a[last-12]") == (-1, b"a", -13)
    assert parse_path(b'$."q\\"[0]"[12]') == (b'q"[0]', 12)


def test_damaged_documents_are_decode_errors() -> None:
    seed = random.Random(SEED)
    whole = write_document({b"k": [TREE, TREE, [TREE]]})
    for _ in range(3000):
        data = bytearray(whole[: seed.randrange(1, len(whole) + 1)])
        for _ in range(seed.randrange(3)):
            data[seed.randrange(len(data))] = seed.randrange(256)
        try:
            parse_document(bytes(data))
        except DecodeError:
            continue
