"""Reasons, in words and numbers."""
