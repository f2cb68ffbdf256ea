"""A Flink CDC pipeline: its YAML enters, our settings and a report on every key leave."""

from __future__ import annotations

from tidemark.importers.flink_cdc.pipeline_file import read_pipeline
from tidemark.importers.flink_cdc.pipeline_translation import translate_pipeline

__all__ = ["read_pipeline", "translate_pipeline"]
