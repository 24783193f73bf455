"""Placeholder."""
def refuse(problem, tile, gpu): pass
