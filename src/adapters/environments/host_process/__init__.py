"""Sandboxes that are folders and processes of this machine."""
