"""Connections enter; a dump of the log, raw result sets, and what is in the way of reading leave."""
