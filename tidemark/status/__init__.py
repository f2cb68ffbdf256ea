"""The state of a pipeline as one tree of values: documents, progress files and facts enter, and each view renders the tree (pure).

`tidemark.api.observe` reads them. Text, JSON (`schemas.json_codec`), the page and the metrics are renderings of the same values.
"""
