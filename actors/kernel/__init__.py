"""Mailboxes, actors and supervision on Trio: knows nothing of what a peer does."""
