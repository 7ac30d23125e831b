"""A sweep on a Ray cluster: its tasks, the storage that all nodes share, and the data they need."""
