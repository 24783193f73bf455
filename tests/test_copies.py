"""The copies behind the memory roofs: every byte of the working set is copied, and the bytes said are those moved."""

import pytest
import torch

from profiler.copies import BLOCK, ELEMENT_BYTES, copy_in_turns, hbm_copy, l2_copy
from profiler.tile_trace import traced_accesses

BLOCK_BYTES = BLOCK * ELEMENT_BYTES


def test_a_copy_through_hbm_reads_and_writes_once() -> None:
    copy = hbm_copy(2**20, "cpu")
    assert copy.moved == 2 * 2**20
    target = copy.launch()
    assert isinstance(target, torch.Tensor) and target.shape == (2**18,)
    assert float(target.std()) == pytest.approx(1.0, abs=0.01), "random data, so that no clock runs on zeros"
    assert copy.words == "1 MiB of random float32, read once and written once"


def test_the_bytes_said_of_a_copy_within_l2_are_those_that_its_programs_move() -> None:
    """An L2 of 8 × 3 blocks gives 3 blocks a side; 1 SM runs 4 programs; 20 blocks of 2 · 16 KiB take 5 turns."""
    with traced_accesses() as trace:
        copy = l2_copy(8 * 3 * BLOCK_BYTES, sm_count=1, moved=2 * 17 * BLOCK_BYTES, device="cpu")
        copy.launch()
    assert copy.moved == 2 * 20 * BLOCK_BYTES
    assert trace.total("read") == trace.total("write") == 20 * BLOCK_BYTES
    reads = {first for _, way, first in trace.accesses if way == "read"}
    assert len(reads) == 3, "the working set is 3 blocks, however often they are copied"
    assert copy.words.startswith("0.0469 MiB of random float32, read and written again")


def test_every_block_arrives() -> None:
    source = torch.randn(5 * BLOCK)
    target = torch.full_like(source, torch.nan)
    copy_in_turns[(2,)](source, target, 5, 3, BLOCK=BLOCK)
    assert torch.equal(source, target)
