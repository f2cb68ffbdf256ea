"""What is known of a pipeline now: looked up every few seconds on a thread, so that no request waits for Kafka or the source."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from schemas.overriding import override
from tidemark.api.observer_loop import ObserverLoop
from tidemark.api.source_log import UNSEEN, SourceConnection, SourceLog
from tidemark.page.lag_history import History, sample_of
from tidemark.status.chunk_map import ChunkMap, chunk_maps
from tidemark.status.job_standing import JobState, Standing
from tidemark.status.lags import Lags
from tidemark.status.snapshot_list import SnapshotList, snapshot_list

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.api.observe import Observer
    from tidemark.status.status_tree import Status

EVERY_S: Final = 2.0
BELIEVED_S: Final = 10.0
"""A look that is older says nothing of now."""
_SOURCE_S: Final = 3.0
_RATE_FACTS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One look: the status, the lags of each sink, the source's log and the snapshots.

    It began at `began_s` of the monotonic clock, which is `began_ms` of this machine's: nothing in it is older. `read_ms` is when
    the status was read. Its rates are those since a look some seconds earlier. `chunks` is by request and table. `unknown` says why
    it is too old to say anything of now, "" where it is not.
    """

    began_s: float
    began_ms: int
    read_ms: int
    statuses: Mapping[str, Status]
    lags: Mapping[str, Lags]
    source: SourceLog
    snapshots: SnapshotList
    chunks: Mapping[tuple[str, str], ChunkMap]
    unknown: str = ""

    @property
    def first(self) -> Status:
        """The status of the first sink: what it says of the source and of the snapshots is the same for all."""
        return next(iter(self.statuses.values()))

    def as_unknown(self, reason: str) -> Facts:
        """Return what is left of a look that is too old: no lag, no word, no rate and no state of a job is that of now."""
        nobody_knows = Standing(JobState.UNKNOWN, reason)
        statuses = {name: replace(status, merge=nobody_knows) for name, status in self.statuses.items()}
        return replace(
            self,
            statuses=statuses,
            snapshots=replace(self.snapshots, producer=nobody_knows).with_rates(self.snapshots),  # no time has passed: no rate
            lags={name: lags.as_unknown(reason) for name, lags in self.lags.items()},
            unknown=reason,
        )


class FactsWatch(ObserverLoop):
    """The facts of a pipeline. `latest` are the newest, however old; `trouble` is why there are no newer ones, "" if there are."""

    def __init__(self, settings: Settings, every_s: float = EVERY_S) -> None:
        super().__init__(settings, self._keep, "facts", every_s)
        self._connection = SourceConnection(settings)
        self._source = SourceQuestion(self._connection.ask)
        self._kept: deque[Facts] = deque(maxlen=_RATE_FACTS)
        self.history = History()

    @override
    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._source.close()

    @property
    def latest(self) -> Facts | None:
        """The newest look; None before the first one."""
        return self._kept[-1] if self._kept else None

    @property
    def age_s(self) -> float:
        """How old the newest look is; infinite before the first one."""
        latest = self.latest
        return float("inf") if latest is None else time.monotonic() - latest.began_s

    @property
    def is_of_now(self) -> bool:
        """Whether the newest look says how it is now."""
        return self.age_s <= BELIEVED_S

    def _keep(self, observer: Observer) -> None:
        began_s, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        statuses = observer.read_each(oldest=True)
        first = next(iter(statuses.values()))
        source = self._source.ask(first)  # after Kafka: what is not in Kafka is counted up to an end that is newer
        state = observer.state()
        snapshots = snapshot_list(state, first.read_ms, None if self.latest is None else self.latest.snapshots)
        if self._kept:
            earlier = self._kept[0]
            statuses = {name: status.with_rates(earlier.statuses[name]) for name, status in statuses.items()}
            snapshots = snapshots.with_rates(earlier.snapshots)
        facts = Facts(
            began_s=began_s,
            began_ms=began_ms,
            read_ms=first.read_ms,
            statuses=statuses,
            lags={name: source.lags(status) for name, status in statuses.items()},
            source=source,
            snapshots=snapshots,
            chunks=chunk_maps(state),
        )
        self._kept.append(facts)
        self.history.add(sample_of(facts))


class SourceQuestion:
    """Asks the source on a thread of its own: a source that is silent makes its own part unknown, and delays one look only."""

    def __init__(self, ask: Callable[[Status], SourceLog], patience_s: float = _SOURCE_S) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(1, "source-look")
        self._asked: Future[SourceLog] | None = None
        self._since_s = 0.0

    def close(self) -> None:
        """Wait for nobody."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, status: Status) -> SourceLog:
        """Return what the source says now; that it does not answer, if it does not soon.

        A question that has no answer yet is waited for no longer: looks that are too far apart would make all unknown.
        """
        if status.log is None:
            return UNSEEN
        is_late = self._asked is not None
        if self._asked is None:
            self._asked, self._since_s = self._pool.submit(self._ask, status), time.monotonic()
        asked = self._asked
        if not wait([asked], 0 if is_late else self._patience_s).done:
            return SourceLog(None, f"the source cannot be asked: no answer for {time.monotonic() - self._since_s:.0f} s")
        self._asked = None  # the next look asks again, also after an error
        answer = asked.result()
        return answer if not is_late else SourceLog(answer.room, answer.problem)  # an answer to an older question is not of now
