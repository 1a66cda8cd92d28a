"""Directories in the published Terminal-Bench 2 / Harbor task format, graded by their own tests."""
