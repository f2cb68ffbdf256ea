"""Texts of SQL as servers write and show them: tokens, definitions of columns, and the columns that those make (pure)."""
