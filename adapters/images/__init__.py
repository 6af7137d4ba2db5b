"""Images of a container engine and the registries they come from."""
