"""The mini-swe-agent package, driven through our ports."""
