"""Proving on a real host what no test machine has: the engines' own images, and a card.

Unlike the agent beside it, it knows what it is to try; like it, it knows the service only through its door.
"""
