"""Changelogs as files: events of a batch enter, a folder of Parquet files or JSON lines and a manifest that names them leave."""
