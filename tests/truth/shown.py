"""What a reader was shown: an answer of a command, a metric's endpoint or the page, as one form that can be judged (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from schemas.overriding import override
from tests.truth import allowances

LATE_S: Final = {
    "lag": allowances.CLI_LATE_S,
    "status": allowances.CLI_LATE_S,
    "fresh lag": allowances.CLI_LATE_S,
    "fresh status": allowances.CLI_LATE_S,
    "producer metrics": allowances.METRICS_LATE_S,
    "merge metrics": allowances.BATCH_LATE_S,
    "page json": allowances.PAGE_LATE_S,
    "page html": allowances.PAGE_LATE_S,
}
"""How old what a reader is shown may be."""
HAS_NO_WORD: Final = frozenset({"merge metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One answer, asked for and given at `asked_s` and `answered_s` (Unix time). `trouble`: there was none, for that reason.

    A lag of None is unknown. `tables` are lags to the sink. `live_lag_s` is the lag to Kafka that the producer reckons when asked.
    `alive` and `caught_up` are said of the jobs. `as_of_s` is the time of the look that a page shows as new, None where it says
    that it is old. `counts` are figures.
    """

    reader: str
    asked_s: float
    answered_s: float
    trouble: str = ""
    word: str | None = None
    reasons: tuple[str, ...] = ()
    has_lags: bool = False
    to_kafka_s: float | None = None
    to_sink_s: float | None = None
    tables: Mapping[str, float | None] = field(default_factory=dict)
    live_lag_s: float | None = None
    alive: Mapping[str, bool | None] = field(default_factory=dict)
    caught_up: bool | None = None
    as_of_s: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_unknown(self) -> bool:
        """Whether it says nothing: no answer, no word, or no lag where it shows lags."""
        lacks_lag = self.has_lags and None in (self.to_kafka_s, self.to_sink_s)
        return bool(self.trouble) or lacks_lag or (self.reader not in HAS_NO_WORD and (self.word or "unknown") == "unknown")

    @property
    def begin_s(self) -> float:
        """The answer counts as true for a moment from here on."""
        return self.asked_s - LATE_S[self.reader]


def of_lag(reader: str, asked_s: float, answered_s: float, document: Mapping[str, Any]) -> Shown:
    (one,) = document["sinks"].values()
    return Shown(
        reader=reader, asked_s=asked_s, answered_s=answered_s, **_lags(one),
        tables={name.rpartition(".")[2]: lag["lag_s"] for name, lag in one["tables"].items()},
    )  # fmt: skip


def of_status(reader: str, asked_s: float, answered_s: float, document: Mapping[str, Any]) -> Shown:
    tables = document["tables"]
    return Shown(
        reader=reader, asked_s=asked_s, answered_s=answered_s, **_lags(document["lag"]),
        tables={name.rpartition(".")[2]: one["lag"]["lag_s"] for name, one in tables.items()},
        alive={"producer": document["producer"]["alive"], "merge": document["sink"]["alive"]},
        caught_up=document["sink"]["caught_up"],
        counts={
            "quarantined": sum(one["quarantined"] for one in tables.values()),
            "set aside": sum(one["set_aside"] is not None for one in tables.values()),
        },
    )  # fmt: skip


def _lags(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "word": one["word"],
        "reasons": tuple(one["reasons"]),
        "has_lags": True,
        "to_kafka_s": one["to_kafka"]["lag_s"],
        "to_sink_s": one["to_sink"]["lag_s"],
    }


def of_page_json(asked_s: float, answered_s: float, document: Mapping[str, Any]) -> Shown:
    overview = document["overview"]
    is_new = not document["unknown"]
    common: dict[str, Any] = {"reader": "page json", "asked_s": asked_s, "answered_s": answered_s}
    if overview is None:
        return Shown(**common, word="unknown", reasons=(document["unknown"],))
    (sink,) = overview["sinks"]
    alive = {"reading": True, "waiting": True, "starting": True, "silent": False, "not_running": False}
    return Shown(
        **common, **_lags(sink), as_of_s=document["as_of_ms"] / 1000 if is_new else None,
        alive={"producer": alive.get(overview["producer"]["state"])},
        counts={"quarantined": overview["tables"]["quarantined_records"], "set aside": overview["tables"]["set_aside"]}
        if is_new
        else {},
    )  # fmt: skip


class _Overview(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str | None] = {}

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "article" and "data-word" in dict(attrs):
            self.found = dict(attrs)


def of_page_html(asked_s: float, answered_s: float, text: str) -> Shown:
    overview = _Overview()
    overview.feed(text)
    common: dict[str, Any] = {"reader": "page html", "asked_s": asked_s, "answered_s": answered_s}
    if not overview.found:
        return Shown(**common, word="unknown", reasons=("the page has no state",))
    to_kafka, to_sink = (overview.found[f"data-to-{one}"] for one in ("kafka", "sink"))
    return Shown(
        **common, word=overview.found["data-word"], has_lags=True, to_kafka_s=float(to_kafka) if to_kafka else None,
        to_sink_s=float(to_sink) if to_sink else None, reasons=tuple(re.findall(r"<li>([^<]+)</li>", text)[:3]),
    )  # fmt: skip


def of_producer_metrics(asked_s: float, answered_s: float, text: str) -> Shown:
    """The lag to Kafka is reckoned when it is asked for; the rest was seen some seconds ago."""
    word, tables, live, counts = None, {}, None, {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == "tidemark_state" and one.value == 1:
                word = one.labels["state"]
            elif one.name == "tidemark_sink_lag_seconds":
                tables[one.labels["table"].rpartition(".")[2]] = one.value
            elif one.name == "tidemark_log_lag_seconds":
                live = one.value
            elif one.name == "tidemark_producer_set_aside_tables":
                counts["set aside"] = one.value
            elif one.name == "tidemark_ready":
                counts["producer ready"] = one.value
    return Shown(
        reader="producer metrics", asked_s=asked_s, answered_s=answered_s, word=word or "unknown", tables=tables, live_lag_s=live,
        counts=counts,
    )  # fmt: skip


def of_merge_metrics(asked_s: float, answered_s: float, text: str) -> Shown:
    names = {
        "tidemark_merge_ready": "merge ready",
        "tidemark_quarantined_records": "quarantined",
        "tidemark_set_aside_tables": "set aside in the sink",
    }
    counts = {
        names[one.name]: one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name in names
    }
    return Shown(reader="merge metrics", asked_s=asked_s, answered_s=answered_s, counts=counts)
