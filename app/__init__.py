"""Presents Runs; its process never loads torch, triton or pynvml."""
