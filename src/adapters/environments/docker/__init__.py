"""Sandboxes that are containers."""
