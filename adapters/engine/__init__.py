"""What serves a model: how it is run, made ready and asked (F20, F21, F23)."""
