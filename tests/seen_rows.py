"""A RowWalk against what the interpreter saw: which tiles in which order, and every tensor's bytes after each step."""

from collections import Counter

import numpy as np

from kernels.base import AttentionKernel
from kernels.problem import AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.run import Output
from profiler.tile_trace import traced_accesses
from tests.attention_cases import draw
from tests.seen_accesses import Access, scheduled, total


def walk_of(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> RowWalk:
    """The Walk of a kernel's one launch."""
    (launch,) = kernel.schedule(problem, tile).launches
    assert isinstance(launch.walk, RowWalk)
    return launch.walk


def check_schedule(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> None:
    """Program by program, step by step, byte for byte."""
    tile = kernel.cut(problem, tile)
    walk, programs = walk_of(kernel, problem, tile), _seen(kernel, problem, tile)
    assert set(programs) == set(range(walk.total_programs))
    loaded = {name: np.zeros((walk.copies, walk.grid.kv_tiles), dtype=np.int64) for name in ("k", "v")}
    for program, accesses in programs.items():
        batch_head, p = divmod(program, walk.programs)
        visits = [at for at, access in enumerate(accesses) if access.tensor in ("k", "v")]
        begins = visits[:: 3 - walk.sweeps]
        assert scheduled(walk, program, -1) == {}
        for step, at in enumerate(begins):
            assert total(accesses[:at]) == scheduled(walk, program, step)
            q_tile, kv_tile = walk.tile_of(program, step)
            assert kv_tile is not None
            for one in visits[step * (3 - walk.sweeps) :][: 3 - walk.sweeps]:
                batch, head = divmod(batch_head, problem.heads)
                kv_head = batch * problem.kv_heads + head // problem.group
                row = kv_head * problem.seq_len_kv + kv_tile * tile.BLOCK_N
                assert accesses[one].element == row * problem.head_dim
                loaded[accesses[one].tensor][batch_head, kv_tile] += 1
            assert accesses[0].element == (batch_head * problem.seq_len_q + q_tile * tile.BLOCK_M) * problem.head_dim
        assert max(len(begins), 1) == walk.steps[p]
        assert total(accesses) == scheduled(walk, program, int(walk.steps[p]))
        _check_steps(walk, program)
    for batch_head in range(walk.copies):
        counts = walk.kv_reads_until(batch_head, walk.steps)
        assert [count.tolist() for count in counts] == [loaded[name][batch_head].tolist() for name in ("k", "v")]


def _check_steps(walk: RowWalk, program: int) -> None:
    """program_steps sum to bytes_until after every visit, and skipped tiles ask for nothing of K and V."""
    sums: Counter[tuple[str, int]] = Counter()
    done = 0
    for step in walk.program_steps("main", program):
        assert (step.mask == "skipped") == (not {"k", "v"} & set(step.reads))
        sums.update({(tensor, 0): size for tensor, size in step.reads.items()})
        sums.update({(tensor, 1): size for tensor, size in step.writes.items()})
        done += step.mask != "skipped"
        if done:
            expected = scheduled(walk, program, done)
            assert {tensor: (sums[tensor, 0], sums[tensor, 1]) for tensor, _ in sums} == expected
    assert max(done, 1) == walk.steps[program % walk.programs]


def _seen(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> dict[int, list[Access]]:
    """{program: its accesses in order}; no program touches an address twice."""
    q, k, v = draw(problem)
    with traced_accesses() as trace:
        output: Output = kernel.forward(q, k, v, problem, tile)
    assert output.lse is not None
    tensors = {"q": q, "k": k, "v": v, "o": output.o, "lse": output.lse}
    spans = [(t.data_ptr(), t.untyped_storage().nbytes(), t.element_size(), name) for name, t in tensors.items()]
    found: dict[int, list[Access]] = {}
    for (program, direction, address), size in trace.accesses.items():  # a Counter keeps the order of its keys
        start, element, name = next((s, e, n) for s, b, e, n in spans if s <= address < s + b)
        found.setdefault(program, []).append(Access(name, direction, (address - start) // element, size))
    return found
