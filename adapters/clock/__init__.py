"""Wall time behind a port: people and facts need it, waiting never does (F37)."""
