"""Settings enter, pinned connections, a dump of the log and raw result sets leave.

Owner of every socket to the database server.
"""
