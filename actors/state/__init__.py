"""Folds: the state that follows from facts. Pure: no Trio, no clock, no I/O."""
