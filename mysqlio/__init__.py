"""The client of MySQL and MariaDB servers: an access enters, pinned connections, their rows and explained errors leave.

Owner of every socket to a database server of these kinds. Nothing here knows the use of a connection.
"""
