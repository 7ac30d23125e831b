"""The model directory: files with checksums, versions, one writer at a time."""
