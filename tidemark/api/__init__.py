"""The view from outside: Kafka, source and sinks are read, the status leaves; signals enter and are put into their channels.

Owns the HTTP endpoints of producer and merge job. Parts of the command use it; it uses none of them.
"""
