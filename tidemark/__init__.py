"""The command `tidemark`: arguments and settings enter, one side of Kafka is started or asked.

Nothing imports it.
"""
