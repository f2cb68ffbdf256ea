"""The judge: what a reader was shown against what the harness knows, over the time that the question took (pure).

An answer is right if it is true at some moment between the question, less the age that it may have, and the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.overriding import override
from tests.truth import allowances
from tests.truth.fault_spans import FaultSpan, FaultSpans
from tests.truth.known_rows import KnownRows, Row
from tests.truth.shown import HAS_NO_WORD, LATE_S, Shown
from tidemark.status.lags import Word

BAD = frozenset({Word.DEAD, Word.STALLED, Word.NEEDS_A_PERSON, Word.UNKNOWN, Word.SNAPSHOTTING})
"""Words that need a reason; `behind` needs a lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A sample that cannot be true, and why not."""

    shown: Shown
    truths: tuple[str, ...]
    episode: str

    @override
    def __str__(self) -> str:
        one = self.shown
        took_s = one.answered_s - one.asked_s
        lags = f"to Kafka {one.to_kafka_s}, to sink {one.to_sink_s}, log lag {one.live_lag_s}"
        said = one.trouble or f"{one.word} {list(one.reasons)[:3]}, {lags}, alive {dict(one.alive)}, counts {dict(one.counts)}"
        head = f"CONTRADICTION in {self.episode}: {one.reader} at {one.answered_s:.1f} (took {took_s:.1f} s): {said}"
        return "\n    truth: ".join((head, *self.truths))


class Judge:
    """Compares one sample at a time, those of a reader in their order.

    Everything that was missing when a sample was taken must be known: ask when an episode is over.
    """

    def __init__(self, rows: KnownRows, spans: FaultSpans) -> None:
        self._rows, self._spans = rows, spans
        self._knew_s: dict[str, float] = {}
        self._answers_s: dict[str, list[float]] = {}

    def contradiction(self, shown: Shown, episode: str = "") -> Contradiction | None:
        """Return what contradicts a sample; None where nothing does."""
        self._answers_s.setdefault(shown.reader, []).append(shown.answered_s)
        self._knew_s.setdefault(shown.reader, shown.asked_s)
        if not shown.is_unknown:
            self._knew_s[shown.reader] = shown.answered_s
        found = [*self._words(shown), *self._lags(shown), *self._figures(shown), *_freshness(shown)]
        return Contradiction(shown=shown, truths=tuple(found), episode=episode) if found else None

    def strictness(self, shown: Shown) -> str:
        """Return by what a sample's word is judged: `fault` (it can only be one), `well` (only a good one), `between` (most are allowed)."""
        begin_s, end_s = shown.begin_s, shown.answered_s
        touching = self._spans.touching(begin_s, end_s, allowances.CALM_S)
        if any(span.must and span.covers(shown.asked_s, end_s, LATE_S[shown.reader]) for span in touching):
            return "fault"
        return "between" if any(span.must | span.may or span.disturbs for span in touching) else "well"

    # --- words

    def _words(self, shown: Shown) -> Iterator[str]:
        begin_s, end_s, late_s = shown.begin_s, shown.answered_s, LATE_S[shown.reader]
        touching = self._spans.touching(begin_s, end_s, allowances.CALM_S)
        if shown.trouble:
            yield from self._no_answer(shown, touching)
        if shown.reader in HAS_NO_WORD:
            return
        word = Word(shown.word or "unknown")
        must = [span for span in touching if span.must and span.covers(shown.asked_s, end_s, late_s) and self._has_seen(shown, span)]
        for span in must:
            is_excused = any(word in other.must | other.may for other in touching if other is not span)
            is_silent = word is Word.UNKNOWN and (shown.trouble or shown.reader in span.mute)
            if word not in span.must and not is_silent and not is_excused:
                since_s = shown.asked_s - span.began_s
                yield f"{span.name} began {since_s:.1f} s before, so the word must be one of {sorted(one.value for one in map(Word, span.must))}"
        is_caused = any(word in span.may | span.must for span in touching) or (word is Word.UNKNOWN and self._may_be_unknown(shown))
        if word in BAD and not shown.trouble and not is_caused:
            yield f"nothing makes it {word.value}: {_names(touching)}"
        longest_s = self._rows.longest_missing_s(begin_s - late_s, end_s)
        if word is Word.BEHIND and not any(span.disturbs for span in touching) and longest_s < allowances.HEALTHY_S:
            yield f"all has been well: no row was missing for longer than {longest_s:.1f} s"
        if word is Word.RUNNING:
            yield from self._good_word(shown)

    def _has_seen(self, shown: Shown, span: FaultSpan) -> bool:
        """Whether the reader may know: its first look after the beginning may be the first one that sees the last liveness record."""
        first_s = next((at_s for at_s in self._answers_s[shown.reader] if at_s > span.began_s), shown.answered_s)
        return span.sees_s < allowances.SILENT_S or shown.asked_s >= first_s + allowances.SILENT_S + allowances.CLOCK_S

    def _good_word(self, shown: Shown) -> Iterator[str]:
        for name, rows in (
            ("Kafka", self._rows.missing_in_kafka(shown.begin_s, shown.answered_s)),
            ("the sink", self._rows.missing_in_sink(shown.begin_s, shown.answered_s)),
        ):
            oldest = min(rows, key=lambda row: row.committed_s, default=None)
            if oldest is not None and shown.begin_s - oldest.committed_s > allowances.BEHIND_AFTER_S:
                yield f"it is not running: {_described(oldest)} is not in {name} after {shown.begin_s - oldest.committed_s:.1f} s"

    def _no_answer(self, shown: Shown, touching: list[FaultSpan]) -> Iterator[str]:
        if not self._may_be_unknown(shown):
            yield f"nothing keeps it from an answer: {_names(touching)}"

    def _may_be_unknown(self, shown: Shown) -> bool:
        """Whether something keeps the reader from knowing, or did a moment ago, or it knew a moment ago."""
        settled = self._spans.touching(shown.begin_s - allowances.UNKNOWN_S, shown.answered_s, allowances.CALM_S)
        is_caused = any(shown.reader in span.mute or Word.UNKNOWN in span.may | span.must for span in settled)
        return is_caused or shown.answered_s - self._knew_s[shown.reader] < allowances.UNKNOWN_FOR_S

    # --- lags

    def _lags(self, shown: Shown) -> Iterator[str]:
        begin_s, end_s = shown.begin_s, shown.answered_s
        to_kafka = list(self._rows.missing_in_kafka(begin_s, end_s))
        to_sink = list(self._rows.missing_in_sink(begin_s, end_s))
        if shown.has_lags:
            yield from _too_small("source to Kafka", shown.to_kafka_s, begin_s, to_kafka, lambda row: row.committed_s)
            yield from _too_small("Kafka to sink", shown.to_sink_s, begin_s, to_sink, lambda row: row.in_kafka_s)
            yield from self._unknown(shown)
        yield from self._too_large(shown)
        for table, lag_s in shown.tables.items():
            of_table = [row for row in to_sink if row.table == table]
            yield from _too_small(f"table {table}", lag_s, begin_s, of_table, lambda row: row.in_kafka_s)
        if shown.live_lag_s is not None:
            missing = list(self._rows.missing_in_kafka(shown.asked_s, end_s))
            yield from _too_small("tidemark_log_lag_seconds", shown.live_lag_s, shown.asked_s, missing, lambda row: row.committed_s)

    def _too_large(self, shown: Shown) -> Iterator[str]:
        begin_s, end_s = shown.begin_s, shown.answered_s
        to_kafka_s, to_sink_s = self._rows.oldest_possible_s(begin_s, end_s)
        began_s = min((span.began_s for span in self._spans.touching(begin_s, end_s, allowances.CALM_S) if span.disturbs), default=end_s)
        for name, lag_s, since_s, over_s in (
            ("source to Kafka", shown.to_kafka_s, to_kafka_s, allowances.TO_KAFKA_OVER_S),
            ("tidemark_log_lag_seconds", shown.live_lag_s, to_kafka_s, allowances.TO_KAFKA_OVER_S),
            ("Kafka to sink", shown.to_sink_s, to_sink_s, allowances.TO_SINK_OVER_S),
            *((f"table {table}", lag_s, to_sink_s, allowances.TO_SINK_OVER_S) for table, lag_s in shown.tables.items()),
        ):
            most_s = end_s - min(since_s, began_s) + over_s
            if lag_s is not None and lag_s > most_s:
                yield f"{name} is given as {lag_s:.1f} s and cannot be more than {most_s:.1f} s"

    def _unknown(self, shown: Shown) -> Iterator[str]:
        settled = self._spans.touching(shown.begin_s - allowances.UNKNOWN_S, shown.answered_s, allowances.CALM_S)
        if any(span.disturbs or shown.reader in span.mute for span in settled) or self._may_be_unknown(shown):
            return
        if shown.to_kafka_s is None or shown.to_sink_s is None:
            yield "a lag is unknown although all has been well"

    # --- figures

    def _figures(self, shown: Shown) -> Iterator[str]:
        begin_s, end_s, late_s = shown.begin_s, shown.answered_s, LATE_S[shown.reader]
        touching = self._spans.touching(begin_s, end_s, allowances.CALM_S)
        covering = [span for span in touching if span.covers(shown.asked_s, end_s, late_s)]
        for name, value in shown.counts.items():
            wanted = {span.counts[name] for span in covering if name in span.counts}
            if wanted and value not in wanted:
                yield f"{name} is {value:g} and must be {sorted(wanted)}"
            elif value != (name.endswith("ready")) and not any(span.disturbs or name in span.counts for span in touching):
                yield f"{name} is {value:g}, and all is well"
        for job, alive in shown.alive.items():
            if alive and any(job in span.dead for span in covering):
                yield f"the {job} is called alive, and is not"
            if alive is False and not any(Word.DEAD in span.may | span.must for span in touching):
                yield f"the {job} is called dead, and is not"
        if shown.caught_up:
            missing = min(self._rows.missing_in_sink(begin_s, end_s), key=lambda row: row.in_kafka_s, default=None)
            if missing is not None and begin_s - missing.in_kafka_s > allowances.CLOCK_S:
                yield f"the merge job is called caught up, and {_described(missing)} is not in the sink"


def _too_small(name: str, lag_s: float | None, begin_s: float, rows: list[Row], since: object) -> Iterator[str]:
    """A number is never less than the age of the oldest row that was missing all the time; 0 only where none was."""
    assert callable(since)
    oldest = min(rows, key=since, default=None)
    if lag_s is None or oldest is None:
        return
    least_s = begin_s - since(oldest) - allowances.CLOCK_S
    if lag_s < least_s:
        yield f"{name} is given as {lag_s:.1f} s, and {_described(oldest)} has been missing for {least_s:.1f} s at least"


def _freshness(shown: Shown) -> Iterator[str]:
    if shown.as_of_s is not None and shown.as_of_s < shown.begin_s - allowances.CLOCK_S:
        age_s = shown.asked_s - shown.as_of_s
        yield f"it shows what it saw {age_s:.1f} s before as new; it says that it does not know after {allowances.PAGE_LATE_S:.0f} s"


def _described(row: Row) -> str:
    return f"row {row.number} of {row.table}"


def _names(spans: list[FaultSpan]) -> str:
    return "in effect: " + (", ".join(span.name for span in spans) or "nothing")
