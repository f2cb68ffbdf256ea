"""SQL text of the log enters, statements of typed clauses leave: no effects, no judgement, no I/O."""
