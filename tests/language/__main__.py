"""`python -m tests.language [path ...]`: print the forbidden words below the paths; `--write` lowers the ratchet to them.

With `--constructions` it does the same for the constructions.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.language import test_constructions as constructions
from tests.language import test_glossary as glossary
from tests.language.constructions import IN_NAMES, IN_PROSE


def main(arguments: list[str]) -> int:
    paths = [argument.rstrip("/") for argument in arguments if not argument.startswith("-")]
    if "--constructions" in arguments:
        return print_constructions(tuple(paths), write="--write" in arguments)
    found = [finding for finding in glossary.findings() if not paths or finding.path.startswith(tuple(paths))]
    print(*found, f"{len(found)} forbidden words; docs/glossary.md says what to write instead", sep="\n")
    if "--write" in arguments:
        counts = glossary.count_by_room([finding.path for finding in glossary.findings()])
        limits = {room: min(limit, counts[room]) for room, limit in glossary.limits().items()}
        file = Path(__file__).with_name("ratchet.txt")
        comments = [line for line in file.read_text("utf-8").splitlines() if line.startswith("#")]
        file.write_text(
            "\n".join([*comments, *(f"{room} {limit}" for room, limit in limits.items())]) + "\n", "utf-8"
        )
    return bool(found)


def print_constructions(paths: tuple[str, ...], *, write: bool) -> int:
    """Print the constructions below the paths; lower the bounds to the counts of the repository."""
    occurrences = [one for one in constructions.occurrences() if not paths or one.path.startswith(paths)]
    print(*occurrences, *(f"{name}: {count}" for name, count in Counter(one.name for one in occurrences).items()), sep="\n")
    if write:
        counts, bounds = constructions.counts(), constructions.bounds()
        lines = [f"{name} {min(counts[name], bounds.get(name, counts[name]))}\n" for name in (*IN_PROSE, *IN_NAMES)]
        Path(__file__).with_name("constructions.txt").write_text("".join(lines), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
