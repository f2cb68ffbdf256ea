"""How long changes take to Kafka and to the lake: what a job noted enters, figures of now leave, or why there are none (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from schemas.delay_histogram import RecentDelays
from schemas.json_codec import Form, json_field
from schemas.liveness import Sign
from tidemark.status.job_standing import Standing

_CLOCKS_MS: Final = 20_000
_OLD_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayStatus:
    """Half and 99 % of the changes took at most `p50_s` and `p99_s` (infinity above all bounds), by the newest `samples` of them.

    They are those of the `window_s` seconds before `newest_ms`, which is `age_ms` ago. `unknown` says why they do not count for
    now, "" where they do. `in_seconds`: the source's log has whole seconds, so that each may be a second too long.
    """

    JSON: ClassVar = Form(head=lambda delay: delay.counted)

    p50_s: float = json_field(absent=True)
    p99_s: float = json_field(absent=True)
    samples: int
    window_s: float
    newest_ms: int
    age_ms: int = json_field(absent=True)
    in_seconds: bool
    unknown: str = json_field("", absent=True)

    @property
    def counted(self) -> dict[str, Any]:
        """Both figures in JSON, null if they are not known to be of now, with the reason."""
        both = {} if self.unknown else {"p50_s": self.p50_s, "p99_s": self.p99_s}
        known = {name: one for name, one in both.items() if one != float("inf")}
        unknown = self.unknown
        if not unknown and self.p99_s == float("inf"):
            unknown = "p99_s: longer than can be counted" if known else "longer than can be counted"
        return {"p50_s": None, "p99_s": None, **known, "age_s": round(self.age_ms / 1000, 1), "unknown": unknown or None}

    @property
    def text(self) -> str:
        """A cell of the table: `50 ms / 100 ms`, with the age where it is not of now."""
        both = f"{_duration(self.p50_s)} / {_duration(self.p99_s)}"
        age = f"{self.age_ms / 1000:,.0f} s ago"
        if self.unknown:
            return f"unknown ({age}: {both})"
        return f"{both} ({age})" if self.age_ms > _OLD_MS else both


def delay_status(
    delays: RecentDelays | None, job: str, standing: Standing, sign: Sign | None, read_ms: int, *, in_seconds: bool = False
) -> DelayStatus | None:
    """Return what the delays say of now, given the state of the job that noted them; None where it noted none.

    The age is by the clock of the job while that is alive.
    """
    if delays is None or not delays.histogram.count:
        return None
    is_alive = bool(standing.alive) and sign is not None
    age_ms = (sign.at_ms if is_alive and sign is not None else read_ms) - delays.newest_ms
    p50_s, p99_s = (delays.histogram.at_most(share) for share in (0.5, 0.99))
    assert p50_s is not None
    assert p99_s is not None
    return DelayStatus(
        p50_s=p50_s,
        p99_s=p99_s,
        samples=delays.histogram.count,
        window_s=delays.window_s,
        newest_ms=delays.newest_ms,
        age_ms=max(0, age_ms),
        in_seconds=in_seconds or delays.in_seconds,
        unknown=_unknown(delays, job, standing, age_ms),
    )


def _unknown(delays: RecentDelays, job: str, standing: Standing, age_ms: int) -> str:
    """Return why the delays are not those of now, "" where they are."""
    if standing.alive is None:
        return f"whether the {job} runs is unknown"
    if not standing.alive:
        return f"the {job} does not run"
    if age_ms < -_CLOCKS_MS:
        return "the newest one is in the future: compare the machines' clocks"
    if age_ms > delays.window_s * 1000:
        return f"no change was counted for {age_ms / 1000:,.0f} s"
    return ""


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "longer"
    return f"{seconds:,.0f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
