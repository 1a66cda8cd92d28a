"""What a run is, in plain values and rules: imports the standard library and pydantic, nothing else."""
