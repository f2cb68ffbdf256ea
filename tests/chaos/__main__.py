"""`python -m tests.chaos`: play rounds, write each down, and count all of this protocol version in the last line."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.chaos.faults import ALL, WITH_REPLICA
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.round import Outcome, plan, play
from tests.chaos.world import Servers
from tidemark.embedded import start_database, start_kafka, start_registry

PROTOCOL = 1
"""Grows with every change of what stands in Kafka, in the state topic or in the sink."""


def main(arguments: list[str]) -> int:
    """0 when every round of this run was good."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    parser.add_argument(
        "--only", default="", help="faults to play instead of drawn ones, separated by commas"
    )
    parser.add_argument(
        "--minutes", type=float, default=0, help="begin no round after this time; 0: no limit"
    )
    parser.add_argument("--replica", action="store_true", help="a primary and a replica, which change places")
    parser.add_argument("--results", type=Path, default=Path("build/chaos.jsonl"))
    options = parser.parse_args(arguments)
    only = tuple(filter(None, options.only.split(",")))
    if not options.replica and any(name in WITH_REPLICA for name in only):
        parser.error("that fault needs --replica")
    if unknown := [name for name in only if name not in ALL]:
        parser.error(f"no fault is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    bad = 0
    began = time.monotonic()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="tidemark-chaos-"))
        servers = Servers(
            stack.enter_context(ReplicatedDatabase(root) if options.replica else start_database("mysql80", root)),
            stack.enter_context(start_kafka(root)),
            stack.enter_context(start_registry(root)),
        )
        for seed in range(options.seed, options.seed + options.rounds):
            if options.minutes and time.monotonic() - began > options.minutes * 60:
                break
            xa, names = plan(seed, only, replica=options.replica)
            print(f"round {seed}: {', '.join(names)}{' (XA)' if xa else ''}", flush=True)
            outcome = _played(servers, seed, root / f"round-{seed}", only)
            bad += not outcome.good
            _write_down(options.results, seed, names, outcome)
            print(
                f"round {seed}: {outcome.events} events, {outcome.rows} rows, {outcome.seconds:.0f} s"
                f"{', restarted: ' + str(outcome.ends) if outcome.ends else ''}"
                f" {'ok' if outcome.good else 'WRONG ' + outcome.wrong}",
                flush=True,
            )
        if not bad:
            shutil.rmtree(root, ignore_errors=True)
    print(summary(options.results))
    return 1 if bad else 0


def _played(servers: Servers, seed: int, folder: Path, only: tuple[str, ...]) -> Outcome:
    """A round; what ends it early is an outcome, too, and the servers run again after it."""
    try:
        return play(servers, seed, folder, only=only)
    except Exception:  # noqa: BLE001 - told in the outcome
        for server in (servers.database, servers.kafka, servers.registry):
            if not server.running:
                server.restart()
        return Outcome(0, 0, 0, 0, 0, 0, 0, 0.0, {}, traceback.format_exc())


def _write_down(results: Path, seed: int, names: list[str], outcome: Outcome) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    line = {"seed": seed, "commit": commit, "protocol": PROTOCOL, "played": names, **outcome.document()}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def summary(results: Path) -> str:
    """All rounds of this protocol version that were written down, counted: of one that was played again, the last time."""
    played: list[dict[str, Any]] = [json.loads(line) for line in results.read_text().splitlines()]
    current = [one for one in played if one["protocol"] == PROTOCOL]
    rounds = list({(one["seed"], *one["played"]): one for one in current}.values())
    total = {
        name: sum(one[name] for one in rounds)
        for name in ("kills", "faults", "events", "lost", "duplicated", "differing")
    }
    bad = sum(bool(one["wrong"]) for one in rounds)
    unfinished = f", {bad} rounds with something wrong" if bad else ""
    return (
        f"chaos: {len(rounds)} rounds, {total['kills']} kills, {total['faults']} other faults, "
        f"{total['events']} events, {total['lost']} lost, {total['duplicated']} duplicated, "
        f"{total['differing']} differing rows{unfinished}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
