"""Where the time of catching up goes: CPU of each thread of the producer, of the broker and of the database, and idle cores.

    python -m bench.thread_times [--rows N] [--repeat N] [--old PATH] [--pin] [--kafka NAME=VALUE ...]

`--pin` gives the producer one core and the servers the others; `--kafka` sets options of the client (`linger.ms=5`).
It ends with the rate of librdkafka that produces the same bytes, and of the log that is read to nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import limits
from bench.arrivals import all_but_the_tail
from bench.bench_figures import Figure
from bench.bench_tools import Tidemark, bring_to_end
from bench.scene import Scene
from bench.stage import Position, Stage

_TICKS = os.sysconf("SC_CLK_TCK")


def threads_of(pid: int) -> Counter[str]:
    """Return CPU seconds of each thread of a process; threads of one name are added up."""
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            head, _, tail = path.read_text(encoding="ascii", errors="replace").rpartition(")")
        except OSError:  # the thread has ended
            continue
        fields = tail.split()
        found[head.partition("(")[2]] += (int(fields[11]) + int(fields[12])) / _TICKS  # type: ignore[assignment]
    return found


def idle_s() -> float:
    """Return seconds that the cores of this machine were idle, added up."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split()
    return (int(fields[4]) + int(fields[5])) / _TICKS


class _Watched:
    """What processes used between the first record that arrived and the last."""

    def __init__(self, tool: Tidemark, scene: Scene, *, pin: bool) -> None:
        self._tool, self._scene, self._pin = tool, scene, pin
        self.pid = 0

    def start(self) -> int:
        """Start the producer."""
        self.pid = self._tool.resume()
        if self._pin:
            os.sched_setaffinity(self.pid, {min(os.sched_getaffinity(0))})
        return self.pid

    def used(self) -> Counter[str]:
        """Return CPU seconds so far by thread of the producer, and of the servers."""
        found = Counter({f"producer, {name}": value for name, value in threads_of(self.pid).items()})
        found["broker"] = sum(threads_of(self._scene.kafka.pid).values())
        found["database"] = sum(threads_of(self._scene.database.pid).values())
        found["idle cores"] = idle_s()  # type: ignore[assignment]
        return found


def _measured(watched: _Watched, tool: Tidemark, rows: int) -> tuple[Figure, Counter[str], float]:
    """Catch up with `rows`; return the figure, CPU seconds by thread and the seconds between the two looks."""
    looks: list[tuple[int, float, Counter[str]]] = []
    base = tool.arrivals.total()
    total: Callable[[], int] = tool.arrivals.total

    def looked() -> int:
        found = total()
        if watched.pid:
            looks.append((found, time.monotonic(), watched.used()))
        return found

    tool.arrivals.total = looked  # type: ignore[method-assign]
    try:
        figure = tool.arrivals.measure(rows, watched.start)
    finally:
        tool.arrivals.total = total  # type: ignore[method-assign]
    first = next(look for look in looks if look[0] > base)
    complete = all_but_the_tail(looks[-1][0] - base, rows) + base
    last = next(look for look in looks if look[0] >= complete)
    return figure, Counter({name: value - first[2][name] for name, value in last[2].items()}), last[1] - first[1]


def main() -> None:
    """Measure and print."""
    options = _options()
    chosen = dict(one.split("=", 1) for one in options.kafka)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-bench-")))
        scene = stack.enter_context(Scene(options.server, folder))
        if options.pin:
            _pin_servers(scene)
        stage = Stage(scene, folder, "threads")
        kafka = {"kafka": {"bootstrap_servers": scene.kafka.bootstrap_servers, "options": chosen}}
        tools = [Tidemark(stage, "tidemark", options=kafka)]
        if options.old is not None:
            tools.append(Tidemark(stage, "old", options.old.resolve(), options=kafka))
        for tool in tools:
            stack.callback(tool.close)
            bring_to_end(tool, stage)
        begin = stage.position()
        for _ in range(options.repeat):
            begin = stage.position()
            stage.insert(options.rows)
            for tool in tools:
                _print(tool, *_measured(_Watched(tool, scene, pin=options.pin), tool, options.rows))
                tool.pause()
        _print_limits(stage, begin, tools[0], options.rows)


def _print(tool: Tidemark, figure: Figure, used: Counter[str], seconds: float) -> None:
    print(f"{tool.name}: {figure.rate:,.0f} rows/s, {figure.cpu_us:.2f} µs of CPU a row, {seconds:.2f} s:", flush=True)
    for name, value in used.most_common():
        if value >= 0.02:
            print(f"  {name:<34}{value:>7.2f} s {value / seconds:>7.0%} of a core", flush=True)


def _print_limits(stage: Stage, begin: Position, tool: Tidemark, rows: int) -> None:
    limit = limits.produce(stage, tool.arrivals.ends(), rows)
    print(f"librdkafka, the same bytes: {limit.rate:,.0f} rows/s, {limit.cpu_us:.2f} µs of CPU a row")
    end = stage.position()
    if begin.file == end.file:
        limit = limits.dump(stage, begin, end, rows)
        print(f"binlog read to nothing: {limit.rate:,.0f} rows/s, {limit.cpu_us:.2f} µs of CPU a row")


def _pin_servers(scene: Scene) -> None:
    """Leave the first core to the producer."""
    servers = os.sched_getaffinity(0) - {min(os.sched_getaffinity(0))}
    for server in (scene.kafka, scene.database):
        for task in Path(f"/proc/{server.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), servers)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.thread_times", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--server", default="mysql80")
    parser.add_argument("--old", type=Path, metavar="PATH", help="another checkout of Tidemark, on the same rows")
    parser.add_argument("--pin", action="store_true", help="one core for the producer, the others for the servers")
    parser.add_argument("--kafka", nargs="*", default=[], metavar="NAME=VALUE", help="options of the client of Kafka")
    return parser.parse_args()


if __name__ == "__main__":
    main()
