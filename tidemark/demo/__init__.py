"""The demo: real servers in, a verified lake out; it owns every process it starts and leaves none."""
