"""Signals in, notifications out.

What enters: rows of the signal table as the log reader reads them, records of a Kafka topic, lines of a file.
What leaves: commands, each to the handler that is registered for it, and the encoded notifications that answer every signal.

`channels` and `signal_inbox` bring signals in, `command_registry` carries them out, `notification_encoder` encodes the
answers; `signal_control` has the parts that the snapshot coordinator uses. Nothing here knows the effect of a command:
`producer.snapshot.signal_commands` registers the handlers of snapshots.
"""
