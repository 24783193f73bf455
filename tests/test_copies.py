"""The copies behind the memory roofs: every byte of the working set is copied, and the bytes said are those moved."""

import pytest
import torch

from profiler.copies import BLOCK, BLOCK_BYTES, copy_in_turns, hbm_copy, l2_copy, l2_read, read_in_turns
from profiler.tile_trace import traced_accesses


def test_a_copy_through_hbm_reads_and_writes_once() -> None:
    copy = hbm_copy(2**20, "cpu")
    assert copy.moved == 2 * 2**20
    target = copy.launch()
    assert isinstance(target, torch.Tensor) and target.shape == (2**18,)
    assert float(target.std()) == pytest.approx(1.0, abs=0.01), "random data, so that no clock runs on zeros"
    assert copy.words == "1 MiB of random float32, read once and written once"


def test_the_bytes_said_of_a_copy_within_l2_are_those_that_its_programs_move() -> None:
    """An L2 of 8 × 3 blocks gives 3 blocks a side; 1 SM runs 3 programs; 17 blocks of 2 · 16 KiB take 6 turns: 18."""
    with traced_accesses() as trace:
        copy = l2_copy(8 * 3 * BLOCK_BYTES, sm_count=1, moved=2 * 17 * BLOCK_BYTES, device="cpu")
        copy.launch()
    assert copy.moved == 2 * 18 * BLOCK_BYTES
    assert trace.total("read") == trace.total("write") == 18 * BLOCK_BYTES
    reads = {first for _, way, first in trace.accesses if way == "read"}
    assert len(reads) == 3, "the working set is 3 blocks, however often they are copied"
    assert copy.words.startswith("0.0469 MiB of random float32, read and written again")


def test_a_read_within_l2_takes_the_whole_working_set_and_writes_nothing_but_sums() -> None:
    """An L2 of 4 × 5 blocks gives 5; 2 SMs run 6 programs; 17 blocks take 3 turns: 18."""
    with traced_accesses() as trace:
        read = l2_read(4 * 5 * BLOCK_BYTES, sm_count=2, moved=17 * BLOCK_BYTES, device="cpu")
        read.launch()
    assert read.moved == 18 * BLOCK_BYTES == trace.total("read")
    assert trace.total("write") == 6 * 4, "a float32 of each program"
    assert len({first for _, way, first in trace.accesses if way == "read"}) == 5


def test_the_sums_are_those_of_the_blocks_read() -> None:
    """2 programs, 3 turns over 4 blocks: program 0 reads blocks 0, 2, 0 and program 1 reads 1, 3, 1."""
    source = torch.ones(4, BLOCK) * torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    sums = torch.full((2,), torch.nan)
    read_in_turns[(2,)](source, sums, 4, 3, BLOCK=BLOCK)
    assert sums.tolist() == [6.0 * BLOCK, 12.0 * BLOCK]


def test_every_block_arrives() -> None:
    source = torch.randn(5 * BLOCK)
    target = torch.full_like(source, torch.nan)
    copy_in_turns[(2,)](source, target, 5, 3, BLOCK=BLOCK)
    assert torch.equal(source, target)
