"""Where a kernel that keeps whole rows of scores stops fitting: what its programs need, against what GPUs have."""

from app.level_table import percent
from app.picture import Table
from app.style import capacity
from app.subject import Subject
from kernels.base import GpuLimits, RowBlockNeeds
from kernels.gpu_limits import register_bytes
from profiler.device import GPUS, limits


def row_block(subject: Subject) -> Table | None:
    """Needs of one program by level and GPU; None for a kernel whose needs do not grow with S."""
    needs = subject.attention_kernel.row_block
    if needs is None:
        return None
    problem, tile = subject.problem, subject.tile
    shared, registers = needs.shared_memory(problem, tile), needs.registers(problem, tile)
    rows = [
        _row(
            f"registers, num_warps {tile.num_warps}",
            registers,
            register_bytes(tile.num_warps),
            needs.longest_in_registers(problem, tile),
        )
    ]
    for name, gpu in _gpus(subject):
        rows.append(_row(f"shared memory, {name}", shared, gpu.shared_memory_per_block, _longest(needs, subject, gpu)))
    caption = (
        f"One program takes {tile.BLOCK_M:,} queries against all {problem.seq_len_kv:,} keys in one round. It needs at "
        f"least {capacity(registers)} of registers, for the scores of its rows, and {capacity(shared)} of shared "
        "memory, for K and then V. Beyond its registers it spills; beyond its shared memory it does not launch."
    )
    columns = ("of one program", "needs", "has", "needed of it", "fits up to S", "source")
    texts, fills = zip(*rows, strict=True)
    return Table("The row block on chip", caption, columns, tuple(texts), fills=tuple(fills))


def _row(where: str, needed: int, has: int, longest: int) -> tuple[tuple[str, ...], tuple[float | None, ...]]:
    fits = f"{longest:,}" if longest else "none"
    share = needed / has
    texts = (where, capacity(needed), capacity(has), percent(share), fits, "model")
    return texts, (None, None, None, share, None, None)


def _longest(needs: RowBlockNeeds, subject: Subject, gpu: GpuLimits) -> int:
    return needs.longest(subject.problem, subject.tile, gpu)


def _gpus(subject: Subject) -> list[tuple[str, GpuLimits]]:
    """The GPU that was measured on; without one those of the table, joined where a CTA has the same shared memory."""
    here = None if subject.device is None else limits(subject.device)
    if here is not None:
        return [(here.name, here)]
    by_size: dict[int, list[str]] = {}
    for spec in GPUS.values():
        by_size.setdefault(spec.shared_memory_per_block, []).append(spec.title)
    found = {spec.shared_memory_per_block: spec.limits for spec in reversed(GPUS.values())}
    return [(", ".join(by_size[size]), found[size]) for size in sorted(by_size)]
