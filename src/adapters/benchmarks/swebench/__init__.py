"""SWE-bench and the data sets of its format, graded by upstream's own code."""
