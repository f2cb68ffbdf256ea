"""`make compose-test`: the compose file of users, on their images or on stand-ins, through restarts of every service."""
