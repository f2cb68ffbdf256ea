"""`python -m tidemark` is the command."""

from __future__ import annotations

import sys

from tidemark.cli import main

sys.exit(main())
