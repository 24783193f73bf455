"""The warp-specialised forward pass compiled for a Hopper that is not here: what its machine code does, and holds."""

import re
from collections.abc import Iterator

import pytest

from kernels.flash_ws.schedule import BLOCK_N, cut
from kernels.problem import LINEAR, LONGEST_FIRST, PERSISTENT, AttentionProblem, TileConfig
from profiler.compile_pool import compile_all
from profiler.compiled_code import SASS, code_of
from profiler.resources import Configuration, LaunchResources
from tests.compiled_apart import caches_in

HEAD_DIMS = (64, 128, 256)
PLAIN = [(head_dim, order) for head_dim in HEAD_DIMS for order in (LINEAR, PERSISTENT)]
MASKED = [(head_dim, LONGEST_FIRST) for head_dim in HEAD_DIMS]  # behind a causal mask
MOST_SPILLED = {64: 128, 128: 8, 256: 0}  # bytes of a thread there, by Triton 3.6 and 3.7
GROUPS = 2  # of warps that compute
# From where S is there to where P V of the tile before is.
LOOP = re.compile(r"DEPBAR\.LE gsb0, 0x1 ;(.*?)DEPBAR\.LE gsb0, 0x0 ;", re.DOTALL)
Compiled = dict[tuple[int, str], tuple[LaunchResources, str]]


def configuration(head_dim: int, order: str) -> Configuration:
    problem = AttentionProblem(1, 16, 16, 8192, 8192, head_dim, "bfloat16", causal=order == LONGEST_FIRST)
    return Configuration("flash_ws", problem, cut(problem, TileConfig(order=order)), (9, 0))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """What the launch takes, and its machine code, by head_dim and order."""
    with caches_in(tmp_path_factory.mktemp("compiled")):
        by_configuration = {
            one.configuration: one for one in compile_all([configuration(*one) for one in (*PLAIN, *MASKED)])
        }
        found = {one: by_configuration[configuration(*one)] for one in (*PLAIN, *MASKED)}
        yield {one: (made.launches[0], code_of(made, made.launches[0], SASS)) for one, made in found.items()}


@pytest.mark.parametrize(("head_dim", "order"), PLAIN)
def test_all_exponentials_of_a_tile_come_before_the_wait_for_the_product_before_it(
    compiled: Compiled, head_dim: int, order: str
) -> None:
    """Half of a tile's 128 rows is a group's, 128 threads have them, and each of their two rows has its alpha too."""
    loops = LOOP.findall(compiled[head_dim, order][1])
    assert [loop.count("MUFU.EX2") for loop in loops] == [64 * BLOCK_N[head_dim] // 128 + 2] * GROUPS


@pytest.mark.parametrize(("head_dim", "order"), PLAIN)
def test_who_has_the_turn(compiled: Compiled, head_dim: int, order: str) -> None:
    """At head_dim 64 the softmax is done in turn, and given on behind the last exponential; wider, the products are."""
    loops = LOOP.findall(compiled[head_dim, order][1])
    assert len(loops) == GROUPS
    for loop in loops:
        waits, gives = "BAR.SYNC.DEFER_BLOCKING 0x8, 0x100", "BAR.ARV"
        if head_dim == 64:
            assert waits in loop or waits.replace("0x8", "0x9") in loop
            assert loop.rindex("MUFU.EX2") < loop.index(gives)
        else:
            assert gives not in loop


@pytest.mark.parametrize(("head_dim", "order"), PLAIN)
def test_without_a_mask_it_spills_nothing_and_holds_its_tiles(compiled: Compiled, head_dim: int, order: str) -> None:
    """Q, O if it has room of its own, two tiles of K and V each, P at head_dim 64; then barriers, in under 1 KB."""
    launch = compiled[head_dim, order][0]
    q, kv, p = 128 * head_dim * 2, BLOCK_N[head_dim] * head_dim * 2, 128 * 256 * 2 * (head_dim == 64)
    o = q * (order == PERSISTENT and head_dim <= 128)
    assert launch.spill_bytes == 0
    assert q + o + 4 * kv + p < launch.shared_memory < q + o + 4 * kv + p + 1024 <= 227 * 1024


@pytest.mark.parametrize(("head_dim", "order"), MASKED)
def test_behind_a_mask_it_spills_little(compiled: Compiled, head_dim: int, order: str) -> None:
    """docs/performance.md tells how much."""
    assert compiled[head_dim, order][0].spill_bytes <= MOST_SPILLED[head_dim]
