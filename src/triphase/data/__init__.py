"""Where images come from and how they reach the model."""

UNLABELLED_FOLDER = "_unlabelled"  # beside the class folders: photos without a class
