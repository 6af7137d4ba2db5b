"""Decisions over the state: may this be done, where, who may read it. Pure: no Trio, no clock, no I/O."""
