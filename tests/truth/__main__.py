"""`python -m tests.truth`: play episodes for some minutes, and count the contradictions in the last line."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.truth.episodes import EPISODES
from tests.truth.scripted_hour import play


def main(arguments: list[str]) -> int:
    """0 where nothing was contradicted; 1 otherwise, and where the pipeline did not recover."""
    parser = argparse.ArgumentParser(prog="truth", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1, help="the order of the episodes")
    parser.add_argument("--only", default="", help="these episodes, in this order, separated by commas")
    options = parser.parse_args(arguments)
    only = tuple(filter(None, options.only.split(",")))
    if unknown := [name for name in only if name not in EPISODES]:
        parser.error(f"no episode is called {', '.join(unknown)}; there are {', '.join(EPISODES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends with us
    folder = Path(tempfile.mkdtemp(prefix="tidemark-truth-"))
    outcome = play(folder, options.minutes, options.seed, only, lambda line: print(line, flush=True))
    if outcome.is_good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"what the processes wrote is in {folder}")
    print(outcome.text, flush=True)
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
