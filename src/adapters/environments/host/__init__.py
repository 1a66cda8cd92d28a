"""What the environment `host_process` is made of."""
