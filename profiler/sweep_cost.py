"""How long a sweep will take, roughly, before it is begun."""

from kernels.problem import TileConfig
from profiler.admission import INTERPRETED_STEP_SECONDS
from profiler.grid import Cell, Grid

CONFIRMED_CELLS = 1_000  # from here on a sweep is begun only when the user has seen how long it takes
SAMPLED_CELLS = 200
# Of one cell with every source of numbers on an H200, its compilation done ahead; on a CPU, of what is not interpreted.
GPU_CELL_SECONDS, CPU_CELL_SECONDS = 1.0, 0.05


def estimate(grid: Grid, on_gpu: bool, workers: int) -> float:
    """Seconds that the grid's cells take, from a sample of them where they are interpreted."""
    if on_gpu:
        return grid.count * GPU_CELL_SECONDS / workers
    cells = [grid.cell(row) for row in grid.rows(every=-(-grid.count // SAMPLED_CELLS))]
    return grid.count / len(cells) * sum(map(_interpreted, cells)) / workers


def _interpreted(cell: Cell) -> float:
    if cell.workload is None:
        return 0.0
    walk = cell.workload.attention_kernel.schedule(cell.workload.problem, cell.workload.tile or TileConfig()).walk
    return CPU_CELL_SECONDS + (0 if walk is None else walk.total_steps) * INTERPRETED_STEP_SECONDS
