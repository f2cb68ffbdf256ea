"""One run: episodes in an order that a seed draws, each at least once before any comes again; then what was shown is judged."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.truth.episodes import EPISODES
from tests.truth.shown_against_known import Contradiction, Judge
from tests.truth.world_of_truth import TruthError, World

CALM_BETWEEN_S = 22.0
"""Between two episodes: so long that readers whose figures are 15 s old, too, see some time in which all is well."""


@dataclass(slots=True)
class Played:
    """What a run found. `failure`: it ended early, for that reason."""

    minutes: float = 0.0
    episodes: list[str] = field(default_factory=list)
    samples: Counter[str] = field(default_factory=Counter)
    without_answer: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    strictness: Counter[str] = field(default_factory=Counter)
    contradictions: list[Contradiction] = field(default_factory=list)
    failure: str = ""

    @property
    def is_good(self) -> bool:
        return not self.contradictions and not self.failure

    @property
    def text(self) -> str:
        """The last line."""
        return (
            f"truth: {self.minutes:.0f} min, {len(self.episodes)} episodes, {self.samples.total()} samples, "
            f"{len(self.contradictions)} contradictions"
        )


def order(rng: random.Random, only: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield names of episodes without end: all in a random order, then all again; `only` those, in their order, once."""
    if only:
        yield from only
        return
    while True:
        yield from rng.sample(sorted(EPISODES), len(EPISODES))


def play(folder: Path, minutes: float, seed: int, only: tuple[str, ...], say: Callable[[str], None]) -> Played:
    """Play episodes until the time is over; one that has begun is finished."""
    played, began = Played(), time.monotonic()
    try:
        with World(folder, random.Random(f"load {seed}"), say) as world:
            world.start()
            say(f"the pipeline is well after {time.monotonic() - began:.0f} s; readers ask every 5 s")
            began = time.monotonic()
            judge = Judge(world.rows, world.spans)
            with world.reading():
                _episodes(world, played, judge, order(random.Random(seed), only), began + minutes * 60)
            _judge(world, played, judge, "the end")
            world.require_all_in_sink("items")
    except Exception:  # noqa: BLE001 - it is part of the outcome
        played.failure += traceback.format_exc()
        say(played.failure)
    played.minutes = (time.monotonic() - began) / 60
    say(f"samples: {dict(played.samples)}; without an answer: {dict(played.without_answer)}; words: {dict(played.words)}")
    say(f"samples taken in a fault that can be seen, while all is well, and between: {dict(played.strictness)}")
    return played


def _episodes(world: World, played: Played, judge: Judge, names: Iterator[str], until: float) -> None:
    world.rest(CALM_BETWEEN_S)
    for name in names:
        if time.monotonic() > until:
            break
        began = time.monotonic()
        played.episodes.append(name)
        world.say(f"episode {len(played.episodes)}, {time.time():.0f}: {name}")
        try:
            EPISODES[name](world)
        except TruthError as error:  # the next episodes may still say something
            world.check()
            world.say(f"  it failed: {error}")
            played.failure += f"{name}: {error}\n"
            failed_s = time.time()
            world.spans.close(failed_s, world.recover(failed_s))
        lasted_s = time.monotonic() - began
        world.rest(CALM_BETWEEN_S)
        found = _judge(world, played, judge, name)
        world.say(f"  {lasted_s:.0f} s, {found} contradictions")


def _judge(world: World, played: Played, judge: Judge, episode: str) -> int:
    """Judge what was shown so far: all that was missing has arrived since."""
    before = len(played.contradictions)
    for sample in world.samples.taken():
        played.samples[sample.reader] += 1
        played.without_answer[sample.reader] += bool(sample.trouble)
        played.words[sample.word or "-"] += 1
        found = judge.contradiction(sample, episode)
        played.strictness[judge.strictness(sample)] += 1
        if found is not None:
            played.contradictions.append(found)
            world.say(str(found))
    return len(played.contradictions) - before
