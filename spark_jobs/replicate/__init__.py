"""The task that applies change records of several sources to the tables of one target, each change once."""
