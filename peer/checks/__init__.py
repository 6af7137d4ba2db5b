"""What `best-peer check` looks at: one module for each part of a machine, and what is said of it.

A look never changes anything and never ends the others. What it needs of the world it is given, so that each
line it may say is a test.
"""
