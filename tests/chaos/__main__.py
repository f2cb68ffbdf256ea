"""`python -m tests.chaos`: play rounds, write each down, and count all of this protocol version in the last line."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from devservers import start_database, start_kafka, start_registry
from tests.chaos import task_faults, task_round
from tests.chaos.faults import ALL, WITH_CLUSTER, WITH_REPLICA
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.results import RESULTS, summary, write_down
from tests.chaos.round import Outcome, plan, play
from tests.chaos.sink_faults import WITH_SINKS
from tests.chaos.sink_plans import kinds_of
from tests.chaos.sink_servers import SinkServers
from tests.chaos.world import Servers
from tests.support.bytecode import keep_bytecode
from tests.support.spark_cluster import SparkCluster

DATABASES = ("mysql80", "mariadb114", "mysql97", "mysql57")
_COMPILED = 0.34
"""The share of rounds with several sinks whose merge job compiles its expressions: many small tables cost more than they do."""


def main(arguments: list[str]) -> int:
    """0 when every round of this run was good."""
    options = _options(arguments)
    began = time.monotonic()
    bad = _side_by_side(options, arguments) if options.jobs > 1 else _rounds(options)
    print(f"{summary(options.results)}; this run {(time.monotonic() - began) / 60:.0f} min")
    return 1 if bad else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    parser.add_argument(
        "--only", default="", help="faults to play instead of drawn ones, separated by commas"
    )
    parser.add_argument(
        "--minutes", type=float, default=0, help="begin no round after this time; 0: no limit"
    )
    parser.add_argument("--db", choices=DATABASES, default=DATABASES[0])
    parser.add_argument("--replica", action="store_true", help="a primary and a replica, which change places")
    parser.add_argument("--cluster", action="store_true", help="Spark on a cluster of two workers")
    parser.add_argument("--writer", choices=("auto", "arrow", "jvm"), default="", help="what writes the lake, with faults aimed at it")
    parser.add_argument("--sinks", action="store_true", help="two or three sinks of one merge job, with routes and transforms")
    parser.add_argument("--sources", type=int, choices=(2,), default=0, help="so many sources of one replication task, with --target")
    parser.add_argument("--target", choices=task_round.TARGETS, default=task_round.TARGETS[0], help="the server that a task applies to")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes share the rounds")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.only = tuple(filter(None, options.only.split(",")))
    faults = task_faults.ALL if options.sources else ALL
    if options.sources and (options.sinks or options.cluster or options.writer or options.replica):
        parser.error("--sources goes without --sinks, --cluster, --writer and --replica")
    if not options.replica and any(name in WITH_REPLICA for name in options.only):
        parser.error("that fault needs --replica")
    if not options.cluster and any(name in WITH_CLUSTER for name in options.only):
        parser.error("that fault needs --cluster")
    if options.sinks and (options.cluster or options.writer):
        parser.error("--sinks goes with neither --cluster nor --writer")
    if not options.sinks and any(name in WITH_SINKS for name in options.only):
        parser.error("that fault needs --sinks")
    if unknown := [name for name in options.only if name not in faults]:
        parser.error(f"no fault is called {', '.join(unknown)}; there are {', '.join(faults)}")
    return options


def _side_by_side(options: argparse.Namespace, arguments: list[str]) -> int:
    """Each process has servers of its own and a share of the seeds; how many of them had bad rounds."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    children: list[subprocess.Popen[bytes]] = []
    first = options.seed
    try:
        for number in range(options.jobs):
            rounds = (options.rounds + number) // options.jobs
            share = ["--jobs", "1", "--seed", str(first), "--rounds", str(rounds)]
            children.append(subprocess.Popen([sys.executable, "-m", "tests.chaos", *arguments, *share]))
            first += rounds
        return sum(child.wait() != 0 for child in children)
    finally:
        for child in children:
            child.terminate()


def _rounds_of_tasks(options: argparse.Namespace) -> int:
    """How many were bad."""
    bad = 0
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="tidemark-chaos-"))
    with task_round.TaskServers(root, options.target) as servers:
        for seed in range(options.seed, options.seed + options.rounds):
            if options.minutes and time.monotonic() - began > options.minutes * 60:
                break
            drawn = task_round.plan(seed, options.only)
            flavour = drawn.flavour(options.target)
            print(f"round {seed}: {', '.join(drawn.names)} ({flavour}{', XA' if drawn.xa else ''})", flush=True)
            begun = time.monotonic()
            try:
                outcome = task_round.play(servers, seed, root / f"round-{seed}", only=options.only)
            except Exception:  # noqa: BLE001 - it is part of the outcome
                servers.restart()
                outcome = _ended_early(begun)
            bad += not outcome.good
            write_down(options.results, seed, flavour, drawn.names, outcome)
            print(f"round {seed}: {_described(outcome)}", flush=True)
    if not bad:
        shutil.rmtree(root, ignore_errors=True)
    return bad


def _ended_early(begun: float, sinks: tuple[str, ...] = ()) -> Outcome:
    """A round that the present error ended."""
    return Outcome(0, 0, 0, 0, 0, 0, 0, time.monotonic() - begun, {}, traceback.format_exc(), sinks=sinks)


def _rounds(options: argparse.Namespace) -> int:
    """How many were bad."""
    if options.sources:
        return _rounds_of_tasks(options)
    flavour = options.db + ("+replica" if options.replica else "") + ("+cluster" if options.cluster else "")
    flavour += f"+{options.writer}" if options.writer else ""
    flavour += "+sinks" if options.sinks else ""
    bad = 0
    began = time.monotonic()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="tidemark-chaos-"))
        servers = Servers(
            stack.enter_context(
                ReplicatedDatabase(options.db, root) if options.replica else start_database(options.db, root)
            ),
            stack.enter_context(start_kafka(root)),
            stack.enter_context(start_registry(root)),
            stack.enter_context(SparkCluster(root)) if options.cluster else None,
            stack.enter_context(SinkServers(root)) if options.sinks else None,
        )
        for seed in range(options.seed, options.seed + options.rounds):
            if options.minutes and time.monotonic() - began > options.minutes * 60:
                break
            kinds = kinds_of(seed) if options.sinks else ()
            drawn = {"replica": options.replica, "cluster": options.cluster, "writer": options.writer, "kinds": kinds}
            xa, names = plan(seed, options.only, **drawn)
            into = f" into {', '.join(kinds)}" if kinds else ""
            print(f"round {seed}: {', '.join(names)}{' (XA)' if xa else ''}{into}", flush=True)
            outcome = _played(servers, seed, root / f"round-{seed}", options)
            bad += not outcome.good
            write_down(options.results, seed, flavour, names, outcome)
            print(f"round {seed}: {_described(outcome)}", flush=True)
        if not bad:
            shutil.rmtree(root, ignore_errors=True)
    return bad


def _described(outcome: Outcome) -> str:
    laps = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.laps.items() if seconds >= 1)
    restarted = f", restarted: {outcome.ends}" if outcome.ends else ""
    verdict = "ok" if outcome.good else f"WRONG {outcome.wrong}"
    return f"{outcome.events} events, {outcome.rows} rows, {outcome.seconds:.0f} s ({laps}){restarted} {verdict}"


def _played(servers: Servers, seed: int, folder: Path, options: argparse.Namespace) -> Outcome:
    """A round; what ends it early is an outcome, too, and the servers run again after it."""
    began = time.monotonic()
    try:
        if not options.sinks:
            return play(servers, seed, folder, only=options.only, writer=options.writer)
        compiled = random.Random(f"compiled {seed}").random() < _COMPILED
        return play(servers, seed, folder, only=options.only, compiled=compiled, kinds=kinds_of(seed))
    except Exception:  # noqa: BLE001 - it is part of the outcome
        cluster = servers.cluster.workers if servers.cluster else ()
        for server in (servers.database, servers.kafka, servers.registry, *cluster):
            if not server.running:
                server.restart()
        kinds = kinds_of(seed) if options.sinks else ()
        return _ended_early(began, kinds)


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main(sys.argv[1:]))
