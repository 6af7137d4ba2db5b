"""The shapes of commands and events, and how they become bytes."""
