"""`python -m tests.language [path ...]`: print the forbidden words below the paths; `--write` lowers the ratchet to them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.language import test_glossary as glossary


def main(arguments: list[str]) -> int:
    paths = [argument.rstrip("/") for argument in arguments if not argument.startswith("-")]
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
