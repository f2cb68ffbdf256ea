"""What settings mean to those who use them: options of Kafka clients, access to the registry, the shape of records (pure).

Sections of `schemas.settings` enter; values for clients and changed record schemas leave. Nothing in `schemas` imports it.
"""
