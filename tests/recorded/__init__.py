"""States that older versions left behind, restored on real servers and continued by the code of today."""
