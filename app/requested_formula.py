"""Requested bytes spelled out: how often each tensor goes over the wire, as a formula with the numbers filled in."""

from dataclasses import dataclass

from app.style import significant, tensor_colour, traffic
from app.tensor_names import tensor_title
from kernels.own import kernel_named
from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Schedule


@dataclass(frozen=True)
class Passes:
    """One tensor of a schedule: its size and the bytes that all launches ask to read and to write of it."""

    tensor: str
    size: int  # bytes of the whole tensor
    size_formula: str
    read: int
    written: int

    @property
    def times(self) -> float:
        """How often the whole tensor's worth of bytes is asked for, both directions."""
        return (self.read + self.written) / self.size


def passes(schedule: Schedule) -> tuple[Passes, ...]:
    """Every tensor that the schedule touches, in its order."""
    problem, grid = schedule.problem, schedule.tiles
    tile = TileConfig() if grid is None else TileConfig(grid.BLOCK_M, grid.BLOCK_N)
    own = kernel_named(schedule.kernel).temporaries(problem, tile)
    sizes = {name: (size, "a temporary of the kernel") for name, size in own.items()} | _sizes(problem)
    found = []
    for tensor, part in schedule.by_tensor.items():
        size, spelled = sizes[tensor]
        found.append(Passes(tensor, size, spelled, part["read"], part["write"]))
    return tuple(found)


def _sizes(problem: AttentionProblem) -> dict[str, tuple[int, str]]:
    b, h, g = problem.batch, problem.heads, problem.kv_heads
    q, kv, d, e = problem.seq_len_q, problem.seq_len_kv, problem.head_dim, problem.element_bytes
    rows, keys = f"{b} · {h} · {q} · {d} · {e} B", f"{b} · {g} · {kv} · {d} · {e} B"
    scores = f"{b} · {h} · {q} · {kv} · {e} B"
    size = problem.tensor_bytes
    gradients = {"do": rows, "dq": rows, "dk": keys, "dv": keys} if problem.backward else {}
    of_scores = dict.fromkeys(("ds", "dp", "dp_p"), (problem.score_bytes, scores)) if problem.backward else {}
    return {
        "q": (size["q"], rows),
        "k": (size["k"], keys),
        "v": (size["v"], keys),
        "s": (problem.score_bytes, scores),
        "p": (problem.score_bytes, scores),
        "mask": (q * kv, f"{q} · {kv} · 1 B"),
        "o": (size["o"], rows),
        "lse": (size["lse"], f"{b} · {h} · {q} · 4 B"),
        **{name: (size[name], spelled) for name, spelled in gradients.items()},
        **of_scores,
    }


def formula(schedule: Schedule) -> tuple[str, str]:
    """Two lines of HTML: "Q + O + LSE + 64 (K + V)", with a spot of each tensor's colour, and the same in numbers."""
    groups: dict[float, list[Passes]] = {}
    for part in passes(schedule):
        groups.setdefault(part.times, []).append(part)
    total = schedule.requested_read_bytes + schedule.requested_write_bytes
    unit = traffic(total).rpartition(" ")[2]
    factor = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}.get(unit, 1.0)
    symbols, numbers = [], []
    for times, parts in sorted(groups.items()):
        names = " + ".join(_spotted(part.tensor) for part in parts)
        size = significant(sum(part.size for part in parts) / factor)
        if times == 1:
            symbols.append(names)
            numbers.append(size)
            continue
        count = f"{times:g}" if times == round(times, 3) else f"{times:.4g}"
        symbols.append(f"{count} ({names})" if len(parts) > 1 else f"{count} {names}")
        numbers.append(f"{count} · {size}")
    return " + ".join(symbols), f"= {' + '.join(numbers)} = <b>{traffic(total)}</b>"


def _spotted(tensor: str) -> str:
    return f'<span style="color:{tensor_colour(tensor)};font-size:17px">■</span> {tensor_title(tensor)}'
