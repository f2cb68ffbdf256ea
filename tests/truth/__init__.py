"""An hour of faults: what status, metrics and page say every five seconds, against what the harness knows by itself."""
