"""The archive: changes of a task enter in stream order, files that keep them leave."""
