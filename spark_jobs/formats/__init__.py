"""Output formats of changelogs: events enter, rows with their kinds, or texts, leave. No Spark job is run here."""
