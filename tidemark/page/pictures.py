"""The plots of each view: documents and the history enter, SVG leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from schemas.batch_stages import STAGES
from tidemark.page.page_facts import BELIEVED_S
from tidemark.page.plots import Line, cells, line_plot, stacked_bars

if TYPE_CHECKING:
    from markupsafe import Markup

    from tidemark.page.parts import Parts

STAGE_NAMES: Final = {"read_s": "read", "merge_s": "merge", "load_s": "load", "save_s": "save"}


def pictures_of(view: str, document: Any, parts: Parts, minutes: int) -> dict[str, Any]:
    """Return what the template of a view shows beside its document."""
    if view == "overview":
        return {"plot": _lags(parts, minutes), "minutes": minutes, "lines": _line_names(parts)}
    if view == "sinks":
        return {"stages": {one["name"]: _batches(one) for one in document}, "stage_names": list(STAGE_NAMES.values())}
    if view == "snapshots":
        return {"maps": _maps(document)}
    return {}


def _line_names(parts: Parts) -> list[str]:
    facts = parts.facts.latest
    return ["source to Kafka", *(f"Kafka to {name}" for name in (() if facts is None else facts.lags) if name)]


def _lags(parts: Parts, minutes: int) -> Markup:
    """Return the lags over the last minutes, up to now."""
    facts, end_ms = parts.facts.latest, time.time_ns() // 1_000_000
    samples = parts.facts.history.last(minutes * 60, end_ms)
    names = _line_names(parts)
    lines = [Line(names[0], [(one.at_ms, one.to_kafka_s) for one in samples])]
    sinks = [] if facts is None else [name for name in facts.lags if name]
    lines += [
        Line(title, [(one.at_ms, one.to_sink_s.get(name)) for one in samples]) for name, title in zip(sinks, names[1:], strict=True)
    ]
    now = ", ".join(f"{line.name} {_now(line, end_ms)}" for line in lines)
    return line_plot(lines, end_ms - minutes * 60_000, end_ms, "s", f"Lag in seconds over the last {minutes} minutes. Now: {now}")


def _now(line: Line, end_ms: int) -> str:
    value = line.points[-1][1] if line.points and end_ms - line.points[-1][0] <= BELIEVED_S * 1000 else None
    return "unknown" if value is None else f"{value:g} s"


def _batches(sink: Mapping[str, Any]) -> Markup | None:
    batches = sink["batches"]
    if not batches:
        return None
    bars = [(_title(one), [one[stage] for stage in STAGES]) for one in batches]
    last = batches[-1]
    return stacked_bars(bars, "s", f"Seconds of the last {len(batches)} batches by stage. The last one: {_title(last)}")


def _title(batch: Mapping[str, Any]) -> str:
    at = f"{datetime.fromtimestamp(batch['ended_ms'] / 1000, UTC):%H:%M:%S}"
    stages = ", ".join(f"{STAGE_NAMES[stage]} {batch[stage]:.2f} s" for stage in STAGES)
    return f"batch {batch['number']}, {at}, {batch['records']:,} records: {stages}"


def _maps(document: Mapping[str, Any]) -> dict[tuple[str, str], Markup]:
    found = {}
    for request in document["requests"]:
        for table in request["tables"]:
            chunks = table["chunks"]
            if chunks is not None and chunks["cells"]:
                label = f"{chunks['done']} of {chunks['planned']} planned chunks are done"
                found[request["id"], table["table"]] = cells(chunks["cells"], label)
    return found
