"""Decoding: raw records and their writer schemas enter, frames of typed columns leave; nothing here reads or writes."""
