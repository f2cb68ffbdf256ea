"""What is on the wire between the two sides of Kafka, and what it means; standard library only.

What enters: nothing, this package does no I/O. What leaves: value objects, schemas and pure rules that both
sides import. Owned by neither.
"""
