"""Durable journals with group commit, the event log, its index and the accepted commands."""
