"""The practitioner's model: a classifier that is taught, one folder of photos after another."""
