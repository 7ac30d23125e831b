"""Continual learning by three-phase consolidation."""
