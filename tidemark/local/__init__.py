"""`tidemark up`: a whole pipeline on one machine, for a trial: broker and registry, if there are none, and our jobs.

local_servers.py starts the servers that the settings name on this machine and that are not there, on data that stays. local_jobs.py
has `tidemark run`, `merge` and `page` as child processes, and says how far they have come.
"""
