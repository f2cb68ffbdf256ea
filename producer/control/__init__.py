"""Signals in, notifications out.

What enters: rows of the signal table as the log reader meets them, records of a Kafka topic, lines of a file.
What leaves: commands for the snapshot coordinator, and the encoded notifications that answer every signal.
"""
