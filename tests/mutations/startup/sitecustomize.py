"""Imported by Python at each start of a process of a mutation's tests: those that a test starts are mutated, too."""

import tests.mutations.plugin  # noqa: F401 - it switches off what `TIDEMARK_MUTATION` names
