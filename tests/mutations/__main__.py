"""`python -m tests.mutations [NAME ...]`: 0 when every mutation made one of its tests fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.mutations.mutation import Mutation
from tests.mutations.table import MUTATIONS

_TESTS_FAILED: Final = 1
_ROOT: Final = Path(__file__).parents[2]


def main(names: list[str]) -> int:
    """Run all mutations, or those named."""
    if unknown := set(names) - {mutation.name for mutation in MUTATIONS}:
        print(f"mutations: there is none called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    survived = 0
    for mutation in chosen:
        failed, words = _killed_by(mutation)
        survived += not failed
        print(f"{mutation.name}: {'noticed by ' if failed else 'NOT NOTICED: '}{words}", flush=True)
    print(f"mutations: {len(chosen)} mechanisms switched off, {len(chosen) - survived} noticed")
    return 1 if survived else 0


def _killed_by(mutation: Mutation) -> tuple[bool, str]:
    """Whether a test failed, and which (or the end of pytest's output)."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", *mutation.tests]
    path = os.pathsep.join((str(_ROOT / "tests" / "mutations" / "startup"), str(_ROOT)))
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TIDEMARK_MUTATION": mutation.name, "PYTHONPATH": path},
    )
    failed = re.findall(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
    if run.returncode == _TESTS_FAILED and failed:
        return True, failed[0]
    return False, run.stdout[-2000:] + run.stderr[-500:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
