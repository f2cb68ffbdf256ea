"""The Iceberg sink: batches enter, snapshots of Iceberg tables leave, each stamped with the step that made it."""
