"""Each mechanism that exactness rests on is switched off in turn: a test must notice (`make mutations`).

`table` says what is switched off and which tests must then fail, `plugin` puts it into a pytest run and into each Python process that
the run starts, `__main__` runs all of them. No file is changed: the module is compiled from mutated text where it is imported.
"""
