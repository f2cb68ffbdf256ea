"""The types of columns: a table of the server's types, a table of semantic types, and the schemas of records that follow.

`column_facts` has a row for each type of a server, `semantic_types` one for each semantic type. No other module of the product
lists types, but for the row codec, which compiles them, and verify, which has rules of its own.
"""
