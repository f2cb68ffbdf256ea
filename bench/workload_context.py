"""What a workload is given, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.bench_figures import Found
from bench.scene import Scene


@dataclass(frozen=True, slots=True)
class Context:
    """The servers and what was asked for on the command line; a workload adds what it found wrong to `failures`."""

    scene: Scene
    folder: Path
    rows: int
    repeat: int
    peers: bool
    old: Path | None
    minutes: float = 30.0
    flink: bool = False
    sinks: tuple[str, ...] = ()
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Workload:
    """A named measurement; `peer` is the tool of its ratios, `short` says that it runs unless others are named.

    Where all tools are ours, `base` is the one that the others are divided by.
    """

    run: Callable[[Context], Found]
    peer: str | None
    short: bool = True
    base: str | None = None
