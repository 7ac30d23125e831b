"""Where images come from and how they reach the model."""
