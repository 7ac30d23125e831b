"""Where images come from and how they reach the model."""

UNLABELLED_FOLDER = "_unlabelled"  # beside class folders: photos that nobody has put into one
