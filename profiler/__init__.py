"""Measures Workloads and saves Runs; knows nothing of pixels."""
