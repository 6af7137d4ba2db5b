"""One Behavioral State Protocol surface over HTTP."""
