"""Resources of configurations on GPUs, as a table for a terminal and as one JSON document."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernels.problem import LINEAR, AttentionProblem
from profiler.codec import encode
from profiler.resource_cache import triton_version
from profiler.resources import LaunchOnGpu, Resources, on_gpu, why_not
from profiler.target import GpuTarget, spell

LIMITED_BY = "limited\nby"
COLUMNS = (
    *("tile", "num_\nwarps", "num_\nstages", "regis-\nters", "spill,\nB", "shared,\nKiB", "CTAs\n/ SM", "occu-\npancy"),
    *(LIMITED_BY, "waves", "last\nwave", "fits"),
)


@dataclass(frozen=True)
class Answer:
    """What became of one configuration on one GPU."""

    gpu: GpuTarget
    found: Resources

    @property
    def launches(self) -> tuple[LaunchOnGpu, ...]:
        """Each launch on the GPU; none where there is a reason."""
        return on_gpu(self.found, self.gpu)

    @property
    def reason(self) -> str:
        """Why the GPU cannot run it; empty where it can."""
        return why_not(self.found, self.gpu)


def tables(problem: AttentionProblem, answers: Sequence[Answer]) -> Iterator[RenderableType]:
    """For each kernel's launch and GPU one row for each tile, and below them how often it did not fit, and why."""
    yield Text(f"{problem.label}, Triton {triton_version()}")
    rows: dict[str, list[tuple[str, ...]]] = {}
    for answer in answers:
        for launch in answer.launches:
            rows.setdefault(_heading(answer, launch), []).append(_row(answer, launch))
    for heading, cells in rows.items():
        yield Text(f"\n{heading}", style="bold")
        yield _table(cells)
    for (gpu, reason), count in Counter((a.gpu.title, a.reason) for a in answers if a.reason).items():
        yield Text(f"–  {count} × {gpu}: {reason}")


def _heading(answer: Answer, launch: LaunchOnGpu) -> str:
    one, gpu = answer.found.configuration, answer.gpu
    of_several = [launch.resources.launch] if len(answer.launches) > 1 else []
    main = answer.found.main
    is_main = main is not None and launch.resources.launch == main.launch
    order = [one.tile.order] if is_main and one.tile.order != LINEAR else []
    name = ", ".join([one.kernel, *of_several, *order])
    return f"{name} on {gpu.title}, compute capability {spell(gpu.compute_capability)}"


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    found = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in COLUMNS:
        # A terminal of 80 columns has room for all; only the limits may fold.
        folds = name == LIMITED_BY
        side: Literal["left", "right"] = "left" if folds or name == COLUMNS[0] else "right"
        found.add_column(name, justify=side, no_wrap=not folds, min_width=9 if folds else None, overflow="fold")
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    return found


def _row(answer: Answer, launch: LaunchOnGpu) -> tuple[str, ...]:
    tile, resources, occupancy = answer.found.configuration.tile, launch.resources, launch.occupancy
    return (
        f"{tile.BLOCK_M}×{tile.BLOCK_N}",
        f"{resources.num_warps}",
        f"{tile.num_stages}",
        f"{resources.registers}",
        f"{resources.spill_bytes}",
        f"{resources.shared_memory / 1024:.4g}",
        f"{occupancy.ctas_per_sm}",
        f"{100 * occupancy.occupancy:.3g}%",
        ", ".join(occupancy.limited_by),
        "–" if launch.waves is None else f"{launch.waves.count:.3g}",
        "–" if launch.waves is None else f"{launch.waves.last_filled:.0%}",
        "yes" if occupancy.fits else "no",
    )


def document(problem: AttentionProblem, answers: Sequence[Answer]) -> dict[str, Any]:
    """What --json prints: sizes in bytes, registers and spills of a thread."""
    return {
        "triton": triton_version(),
        "problem": encode(problem),
        "results": [
            {
                "kernel": answer.found.configuration.kernel,
                "tile": encode(answer.found.configuration.tile),
                "gpu": answer.gpu.name,
                "compute_capability": spell(answer.gpu.compute_capability),
                "fits": not answer.reason,
                "reason": answer.reason,
                "launches": [_launch(launch) for launch in answer.launches],
            }
            for answer in answers
        ],
    }


def _launch(launch: LaunchOnGpu) -> dict[str, Any]:
    resources, occupancy, waves = launch.resources, launch.occupancy, launch.waves
    too_much = occupancy.too_much
    return {
        **{name: value for name, value in encode(resources).items() if name != "code"},
        "ctas_per_sm": occupancy.ctas_per_sm,
        "occupancy": occupancy.occupancy,
        "limited_by": list(occupancy.limited_by),
        "needed": too_much and too_much.needed,
        "limit": too_much and too_much.limit,
        "programs_at_once": waves and waves.programs_at_once,
        "waves": waves and waves.count,
        "last_wave_filled": waves and waves.last_filled,
    }
