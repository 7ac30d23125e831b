"""Models that people teach with folders of photos: lessons, answers, versions."""
