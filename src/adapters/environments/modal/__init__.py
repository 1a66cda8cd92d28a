"""Sandboxes at Modal."""
