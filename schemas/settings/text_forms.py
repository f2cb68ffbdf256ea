"""The forms of texts in settings: each check takes a text, and returns what is wrong with it, "" if nothing is (pure)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[^\s/:\[\]@,]+")
_BROKER: Final = re.compile(rf"(?:[A-Z_]+://)?(?:{_HOST.pattern}):(\d{{1,5}})")
_MEMORY: Final = re.compile(r"[1-9]\d{0,8}[kmgt]b?", re.IGNORECASE)
_MASTER: Final = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://\S+|k8s://\S+|yarn")
_TOPIC: Final = re.compile(r"(?:[A-Za-z0-9._-]|\$\{routedByValue\})+")
_PART: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NAME: Final = re.compile(r"[^/\\\x00-\x1f\x7f]{1,100}")
_CHANNEL: Final = re.compile(r"[a-z0-9_]{1,40}")
_GTID_SET: Final = r"[A-Za-z0-9-]+(?::[A-Za-z_0-9-]+)+"
_LOG_POSITION: Final = re.compile(r"[^\s:/]+\.(\d{6,10}):(\d{1,12})")
_ONE_GTID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?::[a-z_][a-z0-9_]{0,31})?:[1-9]\d*")
_ONE_POSITION: Final = re.compile(r"\d+-\d+-[1-9]\d*|\d{4}\.\d{10}\.\d{12}(?:\.\d{10})?")
_GTIDS: Final = re.compile(rf"\d+-\d+-\d+(?:,\s*\d+-\d+-\d+)*|{_GTID_SET}(?:\s*,\s*{_GTID_SET})*,?")
_LARGEST_PORT: Final = 65_535


def plain(text: str) -> str:
    """Check a name: a text with something in it, on one line."""
    if not text.strip():
        return "is empty"
    return "has a line break or another control character" if _CONTROL.search(text) else ""


def path(text: str) -> str:
    """Check the path of a file or a folder."""
    if text == "~" or text.startswith("~/"):
        return f"{text}: ~ stands for a home folder in a shell only; give the whole path"
    return plain(text)


def host(text: str) -> str:
    """Check a host name or an address, without a port."""
    if "://" in text:
        return f"{text!r} is an address of another kind; give the host name or the address alone"
    if _HOST.fullmatch(text) or re.fullmatch(r"[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*", text):
        return ""
    return f"{text!r} is not a host name or an address; the port has a key of its own"


def brokers(text: str) -> str:
    """Check a list of brokers, `host:port,host:port`."""
    for one in text.split(","):
        found = _BROKER.fullmatch(one.strip())
        if found is None or not 0 < int(found[1]) <= _LARGEST_PORT:
            return f"{one.strip()!r} is not of the form <host>:<port>, for example kafka:9092"
    return ""


def outbox_topic(text: str) -> str:
    """Check the topic of events, which may have the value of a column in it."""
    if _TOPIC.fullmatch(text):
        return ""
    return f"{text!r} is not a topic: A-Z a-z 0-9 . _ -, and ${{routedByValue}} for the value of a column"


def topic_part(text: str) -> str:
    """Check a name that topics begin with."""
    if _PART.fullmatch(text):
        return ""
    return f"{text!r} cannot begin a topic's name: 1 to 100 of A-Z a-z 0-9 . _ -"


def channel(text: str) -> str:
    """Check the name of a channel, which is a part of the name of a table."""
    if _CHANNEL.fullmatch(text):
        return ""
    return f"{text!r} is not a channel: 1 to 40 of a-z 0-9 _, for example east"


def http_url(text: str) -> str:
    """Check the URL of an HTTP service."""
    try:
        parts = urlsplit(text.strip())
        is_right = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_right = False
    shown = text.rpartition("@")[2]
    wrong = not is_right or bool(re.search(r"\s|[\x00-\x1f]", text.strip()))
    return f"{shown!r} is not a URL; it begins with http:// or https://, for example http://registry:8081" if wrong else ""


def memory(text: str) -> str:
    """Check a size of memory as Java has it."""
    if _MEMORY.fullmatch(text.strip()):
        return ""
    return f"{text!r} is not a size of memory: a whole number with k, m, g or t, for example 2g"


def spark_master(text: str) -> str:
    """Check the URL of a Spark master."""
    known = "local[*], local[4], spark://host:7077, k8s://… or yarn"
    return "" if _MASTER.fullmatch(text) else f"{text!r} is not a Spark master: {known}"


def sink_name(text: str) -> str:
    """Check a name that is a part of paths and URLs. It cannot be changed once something is merged, so others than these stay."""
    if _NAME.fullmatch(text) and text.strip(". "):
        return ""
    return f"{text!r} is not a name: 1 to 100 characters without / and \\, for example lake"


def log_position(text: str) -> str:
    """Check a position in a log file of a server."""
    return "" if _LOG_POSITION.fullmatch(text) else f"{text!r} is not a file and a position, for example binlog.000007:4511"


def moment(text: str) -> str:
    """Check a time with a time zone."""
    try:
        microseconds(text)
    except (ValueError, OverflowError) as error:
        return f"{text!r} is not a time ({error}): ISO 8601 with a time zone, for example 2026-11-25T09:00:00Z"
    return ""


def microseconds(text: str) -> int:
    """Return a time in µs since 1970; `ValueError` for another text."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("it has no time zone")
    since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def transaction(text: str) -> str:
    """Check the name of a transaction: its GTID, or its position."""
    if names_one_server(text) or _ONE_POSITION.fullmatch(text):
        return ""
    example = "<server's UUID>:20 of MySQL, 0-1-20 of MariaDB, or a position as messages have it, 0000.0000000001.000000004511"
    return f"{text!r} is neither a GTID nor a position of one transaction: {example}"


def names_one_server(text: str) -> bool:
    """Return whether a transaction has the GTID of a server of MySQL: no other server has it, too."""
    return bool(_ONE_GTID.fullmatch(text))


def gtids(text: str) -> str:
    """Check a set of GTIDs, of MySQL or of MariaDB."""
    if _GTIDS.fullmatch(text.strip()):
        return ""
    return f"{text!r} is not a set of GTIDs: <server's UUID>:1-20 of MySQL, or 0-1-20 of MariaDB"
