"""A predictor answers as the model does, from any number of threads, and changes nothing."""
