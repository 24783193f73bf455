"""Prints how long the tile schedule takes to redraw for S = 65,536 with 64 × 64 tiles, and how many bytes it sends.

python -m benchmarks.page_speed
"""

import logging
import statistics
import time
from collections.abc import Iterator

from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block, Node

from kernels.problem import AttentionProblem, TileConfig

PROBLEM = AttentionProblem(1, 4, 4, 65_536, 65_536, 128, "bfloat16", causal=True)
TILE = TileConfig(64, 64)
REDRAWS = 20


def _page() -> None:
    """The script that AppTest runs: the page alone."""
    from app.views import tile_schedule

    tile_schedule.render(())


def _leaves(node: Node) -> Iterator[Node]:
    if not isinstance(node, Block):
        yield node
        return
    for child in node.children.values():
        yield from _leaves(child)


def main() -> None:
    """Step through the schedule and report the median and the slowest redraw."""
    logging.disable(logging.WARNING)
    app = AppTest.from_function(_page, default_timeout=60)
    app.session_state["problem"], app.session_state["tile"] = PROBLEM, TILE
    seconds, sizes = [], []
    for step in range(REDRAWS):
        app.session_state["program"], app.session_state["kv_tile"] = 700, 10 * step
        begun = time.perf_counter()
        app.run()
        seconds.append(time.perf_counter() - begun)
        assert not app.exception, app.exception
        sizes.append(sum(len(leaf.proto.SerializeToString()) for leaf in _leaves(app.main)))
    first, *rest = seconds
    print(f"tile schedule, {PROBLEM.label}, {TILE.BLOCK_M}×{TILE.BLOCK_N} tiles, {REDRAWS} redraws")
    print(f"first draw      {first * 1e3:7.0f} ms")
    print(f"redraw, median  {statistics.median(rest) * 1e3:7.0f} ms   (goal: 500 ms)")
    print(f"redraw, slowest {max(rest) * 1e3:7.0f} ms")
    print(f"bytes sent      {max(sizes) / 1e3:7.0f} kB   (goal: 2,000 kB)")


if __name__ == "__main__":
    main()
