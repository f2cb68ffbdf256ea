"""What rounds came to: a line each in a file of the repository, and all of them counted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.chaos.round import Outcome

PROTOCOL: Final = 3
"""Grows with every change of what is in Kafka, in the state topic or in the sink."""
RESULTS: Final = Path(__file__).with_name("results.jsonl")
_COUNTED: Final = ("kills", "faults", "events", "refusals", "lost", "duplicated", "differing", "leaked", "out_of_order")
_SHOWN: Final = 200


def write_down(results: Path, seed: int, flavour: str, names: list[str], outcome: Outcome) -> None:
    """Append a round's line; what was wrong is cut short there."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    document = outcome.document()
    line = {"seed": seed, "flavour": flavour, "commit": commit, "protocol": PROTOCOL, "played": names}
    line |= {name: document[name] for name in _COUNTED}
    line |= {"seconds": round(outcome.seconds), "wrong": outcome.wrong.strip()[-_SHOWN:]}
    line |= {"sinks": outcome.sinks} if outcome.sinks else {}
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def summary(results: Path) -> str:
    """All rounds of this protocol version that were written down, counted: of one that was played again, the last time."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    played: list[dict[str, Any]] = [json.loads(line) for line in lines]
    current = [one for one in played if one["protocol"] == PROTOCOL]
    rounds = list({(one["seed"], one["flavour"], *one["played"]): one for one in current}.values())
    total = {name: sum(one.get(name, 0) for one in rounds) for name in _COUNTED}
    bad = sum(bool(one["wrong"]) for one in rounds)
    unfinished = f", {bad} rounds with something wrong" if bad else ""
    hours = sum(one["seconds"] for one in rounds) / 3600
    kinds = Counter(kind for one in rounds for kind in one.get("sinks", ()))
    sinks = f"; sinks: {', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))}" if kinds else ""
    return (
        f"chaos: {len(rounds)} rounds, {total['kills']} kills, {total['faults']} other faults, {total['refusals']} refusals, "
        f"{total['events']} events, {total['lost']} lost, {total['duplicated']} duplicated, "
        f"{total['differing']} differing rows, {total['leaked']} leaked, {total['out_of_order']} out of order{unfinished}{sinks}; {hours:.1f} h of rounds"
    )
