"""Schedules against the interpreter's trace, torch's dispatcher, and numbers worked out by hand."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.base import all_kernels
from kernels.problem import ELEMENT_BYTES, LINEAR, PERSISTENT, AttentionProblem, Refused, TileConfig
from kernels.run import Output
from kernels.schedule import Launch
from kernels.tile_grid import TileGrid
from kernels.walk import Walk
from profiler.bench import draw_do
from profiler.tile_trace import AccessTrace, traced_accesses
from tests.attention_cases import CASES, draw

pytestmark = pytest.mark.computes

FLASH, NAIVE = all_kernels()["flash"], all_kernels()["naive"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
BLOCKS = st.sampled_from([8, 16, 32])


@st.composite
def problems(draw_: st.DrawFn) -> AttentionProblem:
    batch, heads, kv_heads = draw_(st.sampled_from([(1, 1, 1), (1, 2, 1), (2, 2, 2)]))
    return AttentionProblem(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        seq_len_q=draw_(st.integers(1, 70)),
        seq_len_kv=draw_(st.integers(1, 70)),
        head_dim=draw_(st.sampled_from([1, 5, 16, 20])),
        dtype=draw_(st.sampled_from(list(ELEMENT_BYTES))),
        causal=draw_(st.booleans()),
        window=draw_(st.none() | st.integers(1, 20)),
    )


def traced(problem: AttentionProblem, tile: TileConfig) -> dict[int, dict[str, tuple[int, int]]]:
    """What the interpreter saw: {program: {tensor: (read, written)}}."""
    q, k, v = draw(problem)
    with traced_accesses() as trace:
        output: Output = FLASH.forward(q, k, v, problem, tile)
    assert output.lse is not None
    return by_program(trace, {"q": q, "k": k, "v": v, "o": output.o, "lse": output.lse})


def by_program(trace: AccessTrace, tensors: dict[str, torch.Tensor]) -> dict[int, dict[str, tuple[int, int]]]:
    """{program: {tensor: (read, written)}} for the tensors named; accesses outside them go to "other"."""
    spans = []
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name))
    table: dict[int, dict[str, tuple[int, int]]] = {}
    for (program, direction, address), size in trace.accesses.items():
        name = next((n for start, end, n in spans if start <= address < end), "other")
        read, written = table.setdefault(program, {}).get(name, (0, 0))
        more = (read + size, written) if direction == "read" else (read, written + size)
        table[program][name] = more
    return table


def scheduled(problem: AttentionProblem, tile: TileConfig) -> dict[int, dict[str, tuple[int, int]]]:
    """The same by the Schedule."""
    walk = walk_of(problem, tile)
    found = {}
    for program in range(walk.total_programs):
        table = walk.bytes_until(program // walk.programs, walk.steps)
        sums = {name: tuple(int(part[program % walk.programs]) for part in parts) for name, parts in table.items()}
        found[program] = {name: (read, written) for name, (read, written) in sums.items() if read or written}
    return found


def walk_of(problem: AttentionProblem, tile: TileConfig) -> Walk:
    walk = FLASH.schedule(problem, tile).walk
    assert walk is not None
    return walk


@st.composite
def tiles(draw_: st.DrawFn, causal: bool) -> TileConfig:
    order = draw_(st.sampled_from(FLASH.orders if causal else FLASH.orders[:2]))
    return TileConfig(draw_(BLOCKS), draw_(BLOCKS), order=order)


@st.composite
def works(draw_: st.DrawFn) -> tuple[AttentionProblem, TileConfig]:
    problem = draw_(problems())
    return problem, draw_(tiles(problem.causal))


@settings(max_examples=100)
@given(works())
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    """Program by program, tensor by tensor, byte for byte, in every order."""
    assert traced(*work) == scheduled(*work)


@settings(max_examples=60)
@given(works())
def test_visits_the_tiles_in_the_order_of_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    """The addresses of K that each program loads, one load after another."""
    problem, tile = work
    inputs = q, k, v = draw(problem)
    with traced_accesses() as trace:
        FLASH.forward(q, k, v, problem, tile)
    walk, row = walk_of(*work), problem.head_dim * problem.element_bytes
    base, size = inputs[1].untyped_storage().data_ptr(), inputs[1].untyped_storage().nbytes()
    found: dict[int, list[int]] = {}
    for program, direction, address in trace.accesses:  # a Counter keeps the order of its keys
        if direction == "read" and base <= address < base + size:
            tile_at = (address - base) // row % problem.seq_len_kv // tile.BLOCK_N
            found.setdefault(program, []).append(tile_at)
    for program in range(walk.total_programs):
        visited = [walk.tile_of(program, step)[1] for step in range(int(walk.steps[program % walk.programs]))]
        assert found.get(program, []) == [kv_tile for kv_tile in visited if kv_tile is not None]


@settings(max_examples=100)
@given(works())
def test_where_and_when_a_tile_is_visited_agree(work: tuple[AttentionProblem, TileConfig]) -> None:
    """tile_of, when and order_of say the same, and states_of the same order."""
    walk = walk_of(*work)
    grid = walk.grid
    for program in range(walk.total_programs):
        batch_head, steps = program // walk.programs, int(walk.steps[program % walk.programs])
        visits = [walk.tile_of(program, step) for step in range(steps)]
        q_tile = visits[0][0]
        order = walk.order_of(batch_head, np.array([q_tile]), np.arange(grid.kv_tiles))
        for step, (_, kv_tile) in enumerate(visits):
            if kv_tile is None:
                assert np.isnan(order).all()
                continue
            assert walk.when(batch_head, q_tile, kv_tile) == (program, step)
            assert order[kv_tile] == step
        seen = [kv_tile for _, kv_tile in visits if kv_tile is not None]
        assert np.flatnonzero(~np.isnan(order)).tolist() == sorted(seen)
        assert [list(states) for states in walk.states_of(batch_head, q_tile)] == [seen]


def test_sawtooth_by_hand() -> None:
    """Four Q tiles in waves of two: programs 0 and 1 go forwards, 2 and 3 backwards; of the next head likewise."""
    problem = AttentionProblem(1, 2, 2, 64, 48, 16)
    plan = FLASH.schedule(problem, TileConfig(16, 16, order="sawtooth")).with_wave(2)
    assert plan.walk is not None
    paths = [[plan.walk.tile_of(program, step)[1] for step in range(3)] for program in range(8)]
    assert paths == [[0, 1, 2], [0, 1, 2], [2, 1, 0], [2, 1, 0]] * 2


def test_longest_first_by_hand() -> None:
    """The last Q tile, which sees all four KV tiles, is program 0."""
    problem = AttentionProblem(1, 1, 1, 64, 64, 16, causal=True)
    walk = walk_of(problem, TileConfig(16, 16, order="longest_first"))
    assert [walk.tile_of(program, 0)[0] for program in range(4)] == [3, 2, 1, 0]
    assert walk.steps.tolist() == [4, 3, 2, 1]


def test_longest_first_needs_programs_of_different_lengths() -> None:
    with pytest.raises(Refused, match=r"^longest_first launches the programs with most KV tiles first, and without a"):
        FLASH.cut(AttentionProblem(), TileConfig(order="longest_first"))


def test_an_order_of_another_kernel_is_linear() -> None:
    for name, order in (("flash", LINEAR), ("flash_tma", LINEAR), ("flash_ws", PERSISTENT)):
        tile = all_kernels()[name].cut(AttentionProblem(), TileConfig(order=PERSISTENT))
        assert tile.order == order


def test_orders_ask_for_the_same_bytes() -> None:
    problem = AttentionProblem(1, 2, 1, 200, 300, 64, causal=True, window=90)
    plans = [FLASH.schedule(problem, TileConfig(32, 16, order=order)).by_tensor for order in FLASH.orders]
    assert plans[0] == plans[1] == plans[2]


@settings(max_examples=60)
@given(works())
def test_reads_of_kv_tiles_are_counted(work: tuple[AttentionProblem, TileConfig]) -> None:
    """After every n steps of all programs, against the tiles they visited one by one."""
    walk = walk_of(*work)
    for batch_head in range(walk.copies):
        for done in range(-1, int(walk.steps.max()) + 1):
            counts = np.zeros(walk.grid.kv_tiles, dtype=int)
            for p in range(walk.programs):
                for step in range(min(done, int(walk.steps[p]))):
                    kv_tile = walk.tile_of(batch_head * walk.programs + p, step)[1]
                    if kv_tile is not None:
                        counts[kv_tile] += 1
            k, v = walk.kv_reads_until(batch_head, np.full(walk.programs, done))
            assert k.tolist() == v.tolist() == counts.tolist()


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith("seq_1025")])
def test_equals_the_interpreters_trace_on_the_cases(case: str) -> None:
    problem, tile = CASES[case]
    assert traced(problem, tile) == scheduled(problem, tile)
    plan = FLASH.schedule(problem, tile)
    found = traced(problem, tile).values()
    assert plan.requested_read_bytes == sum(read for tensors in found for read, _ in tensors.values())
    assert plan.requested_write_bytes == sum(written for tensors in found for _, written in tensors.values())


@settings(max_examples=100)
@given(problems(), BLOCKS, BLOCKS)
def test_tiles_equal_the_mask(problem: AttentionProblem, block_m: int, block_n: int) -> None:
    """skipped: no score counts; full: every score of a whole tile counts; partial: anything between."""
    grid = TileGrid(problem, block_m, block_n)
    lo, hi = problem.visible_keys()
    key = np.arange(grid.kv_tiles * block_n)
    seen = (key >= lo[:, None]) & (key < hi[:, None])
    for i in range(grid.q_tiles):
        for j in range(grid.kv_tiles):
            scores = seen[i * block_m : (i + 1) * block_m, j * block_n : (j + 1) * block_n]
            expected = "full" if scores.all() else "partial" if scores.any() else "skipped"
            assert grid.mask_of(i, j) == expected, (i, j)


@settings(max_examples=100)
@given(works())
def test_steps_sum_to_every_total(work: tuple[AttentionProblem, TileConfig]) -> None:
    plan = FLASH.schedule(*work)
    by_tensor: dict[str, Counter[str]] = {}
    programs = set()
    for step in plan.steps():
        programs.add(step.program_id)
        assert (step.mask == "skipped") == (not {"k", "v"} & set(step.reads))
        for direction, part in (("read", step.reads), ("write", step.writes)):
            for tensor, size in part.items():
                by_tensor.setdefault(tensor, Counter())[direction] += size
    assert programs == set(range(walk_of(*work).total_programs))
    assert {name: {"read": c["read"], "write": c["write"]} for name, c in by_tensor.items()} == plan.by_tensor
    assert plan.requested_read_bytes == sum(c["read"] for c in by_tensor.values())
    assert plan.requested_write_bytes == sum(c["write"] for c in by_tensor.values())


@settings(max_examples=100)
@given(works())
def test_bytes_up_to_a_step_equal_the_steps_before(work: tuple[AttentionProblem, TileConfig]) -> None:
    """bytes_until n visited tiles, against the sum of the first n of them."""
    walk = walk_of(*work)
    for program in range(walk.total_programs):
        batch_head, p = divmod(program, walk.programs)
        visited = [step for step in walk.program_steps("flash", program) if step.mask != "skipped"]
        for done in range(1, len(visited) + 1):
            found = walk.bytes_until(batch_head, np.full(walk.programs, done))
            reads: Counter[str] = sum((Counter(step.reads) for step in visited[:done]), Counter())
            writes: Counter[str] = sum((Counter(step.writes) for step in visited[:done]), Counter())
            assert {name: int(read[p]) for name, (read, _) in found.items() if read[p]} == reads
            assert {name: int(w[p]) for name, (_, w) in found.items() if w[p]} == writes
        before = walk.bytes_until(batch_head, np.full(walk.programs, -1))
        assert not any(part[p] for parts in before.values() for part in parts)


def test_flash_by_hand() -> None:
    """16 heads of 64 programs; each streams K and V, 4,194,304 B, past its share of Q, 33,554,432 B in all."""
    plan = FLASH.schedule(LONG, TileConfig(128, 64))
    assert plan.walk is not None and plan.walk.total_programs == 1024
    assert plan.by_tensor == {
        "q": {"read": 33_554_432, "write": 0},
        "k": {"read": 1024 * 2_097_152, "write": 0},
        "v": {"read": 1024 * 2_097_152, "write": 0},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }
    assert plan.requested_read_bytes == 4_328_521_728
    assert plan.requested_write_bytes == 34_078_720


def test_half_the_block_twice_the_kv_bytes() -> None:
    sizes = {m: FLASH.schedule(LONG, TileConfig(m, 64)).by_tensor["k"]["read"] for m in (16, 32, 64, 128, 256)}
    assert all(sizes[m] == 2 * sizes[2 * m] for m in (16, 32, 64, 128))


def test_causal_by_hand() -> None:
    """4 Q tiles of 16 rows visit 1, 2, 3 and 4 KV tiles: 10 of 16, each 16 · 64 · 2 B of K."""
    problem = AttentionProblem(1, 2, 1, 64, 64, 64, causal=True)
    grid = TileGrid(problem, 16, 16)
    assert (grid.first.tolist(), grid.last.tolist()) == ([0, 0, 0, 0], [1, 2, 3, 4])
    assert (grid.full_first.tolist(), grid.full_last.tolist()) == ([0, 0, 0, 0], [0, 1, 2, 3])
    assert FLASH.schedule(problem, TileConfig(16, 16)).by_tensor["k"]["read"] == 2 * 10 * 16 * 64 * 2


def test_naive_by_hand() -> None:
    """Six passes over the score matrix of 2,147,483,648 B, three of each direction."""
    plan = NAIVE.schedule(LONG, TileConfig())
    scores, tensor = 2_147_483_648, 33_554_432
    assert [launch.name for launch in plan.launches] == ["qk", "scale", "softmax", "pv"]
    assert plan.requested_read_bytes == 3 * scores + 3 * tensor
    assert plan.requested_write_bytes == 3 * scores + tensor
    assert NAIVE.temporaries(LONG, TileConfig()) == {"s": scores, "p": scores}


class OperandBytes(TorchDispatchMode):
    """Bytes of every operation's operands by launch: its inputs unless overwritten, its result unless a view."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launch = ""
        self.found: dict[str, tuple[int, int]] = {}

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        self.launch = name
        yield
        self.launch = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [argument for argument in args if isinstance(argument, torch.Tensor) and argument.dim()]
        shares = result.untyped_storage().data_ptr() in [t.untyped_storage().data_ptr() for t in inputs]
        if self.launch and (func._schema.is_mutable or not shares):
            overwrites = func is torch.ops.aten.zero_.default
            read, written = self.found.get(self.launch, (0, 0))
            read += 0 if overwrites else sum(map(self._size, inputs))
            self.found[self.launch] = read, written + self._size(result)
        return result

    @staticmethod
    def _size(tensor: torch.Tensor) -> int:
        distinct = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
        return math.prod(distinct) * tensor.element_size()


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("case", CASES)
def test_naive_equals_the_operands_of_its_launches(case: str, dtype: str) -> None:
    """Forward and backward; on a GPU torch's softmax backward has dP∘P between its two kernels, and reads P in both."""
    problem = AttentionProblem(**vars(CASES[case][0]) | {"dtype": dtype, "backward": True})
    inputs, do = draw(problem), draw_do(problem, 0, "cpu")
    with OperandBytes() as mode:
        output = NAIVE.forward(*inputs, problem, TileConfig(), launch=mode.named, finite=True)
        NAIVE.backward(*inputs, output, do, problem, TileConfig(), launch=mode.named, finite=True)
    launches = NAIVE.schedule(problem, TileConfig()).launches
    read, written = mode.found["ds"]
    mode.found["ds"] = read + 2 * problem.score_bytes, written + problem.score_bytes
    assert mode.found == {x.name: (sum(x.reads.values()), sum(x.writes.values())) for x in launches}


def test_a_long_schedule_is_quick_and_its_arrays_are_read_only() -> None:
    problem = AttentionProblem(1, 4, 4, 2**20, 2**20, 128, causal=True)
    grid = TileGrid(problem, 64, 64)
    assert walk_of(problem, TileConfig(64, 64)).total_programs == 4 * 2**14
    with pytest.raises(ValueError, match="read-only"):
        grid.first[0] = 1


@pytest.mark.parametrize(
    ("head_dim", "dtype", "most"),
    [
        # Q and O 131,072 B each, K and V 131,072 B a head for each of 8 Q tiles, LSE 4,096 B; rows are 4 sectors.
        (64, "float16", 2 * 131_072 + 2 * 8 * 131_072 + 4_096),
        # A row of 126 B lies in at most 5 sectors, 160 B.
        (63, "float16", -(-(2 * 129_024 + 2 * 8 * 129_024 + 4_096) * 160 // 126)),
    ],
)
def test_flash_claims_what_crosses_between_l2_and_the_sms(head_dim: int, dtype: str, most: int) -> None:
    problem = AttentionProblem(1, 2, 2, 512, 512, head_dim, dtype)
    claimed = all_kernels()["flash"].l2_sm_bounds
    assert claimed is not None and claimed(problem, TileConfig(64, 64)) == (problem.compulsory_bytes, most)


@pytest.mark.parametrize("name", ["drain", "whole pass", "pv, kernel 1", ""])
def test_a_launch_is_an_identifier_other_than_the_drain(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be named '{name}'"):
        Launch(name, {}, {})
