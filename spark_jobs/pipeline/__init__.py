"""Pipelines: what routes and transforms make of the captured tables. No Spark job is run here (DESIGN §9)."""
