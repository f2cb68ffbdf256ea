"""Sinks: the newest row of each key enters, tables equal to the source leave; a sink owns every format and commit of its tables."""
