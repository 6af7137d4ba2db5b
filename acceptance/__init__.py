"""An agent that has nothing but a manifest's address, and the transcripts it made.

It shares no code with the product and knows no name of it: no command, field, event or path. What it knows is
the public protocol (a manifest, device sign-in, catalogues, schema documents, recipes, events, a stream); the
rest it reads where the service says it. `tests/acceptance` holds it to that.

Run it with ``python -m acceptance MANIFEST``; ``scripts/accept`` does, against a peer of its own.
"""
