"""The merge: offsets of a batch and the state before it enter, steps of a sink and the next state leave; one batch owns them."""
