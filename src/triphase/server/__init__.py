"""A model over HTTP: a page for people, an interface for programs."""
