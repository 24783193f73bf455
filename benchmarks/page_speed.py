"""Prints how long pages take to redraw, and how many bytes they send.

python -m benchmarks.page_speed     the tile schedule for S = 65,536 in 64×64 tiles; Block sizes of 25 tiles on 4 GPUs
"""

import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block, Node

from kernels.problem import AttentionProblem, TileConfig
from profiler.resource_cache import ResourceCache, resources_folder, triton_version
from profiler.resources import Code, Configuration, LaunchResources, Resources

PROBLEM = AttentionProblem(1, 4, 4, 65_536, 65_536, 128, "bfloat16", causal=True)
TILE = TileConfig(64, 64)
GPUS = ["A100 SXM 80 GB", "L4", "H100 SXM", "B200"]
BLOCKS = (16, 32, 64, 128, 256)
REDRAWS = 20


def _tile_schedule() -> None:
    """The script that AppTest runs: the page alone."""
    from app.views import tile_schedule

    tile_schedule.render(())


def _block_sizes() -> None:
    from app.views import block_sizes

    block_sizes.render(())


def _leaves(node: Node) -> Iterator[Node]:
    if not isinstance(node, Block):
        yield node
        return
    for child in node.children.values():
        yield from _leaves(child)


def _fill_cache() -> None:
    """Resources of every tile on every GPU, made up: what they say costs nothing, reading them does."""
    cache = ResourceCache(resources_folder(), triton_version() or "")
    for capability in ((8, 0), (8, 9), (9, 0), (10, 0)):
        for m in BLOCKS:
            for n in BLOCKS:
                one = Configuration("flash", PROBLEM, TileConfig(m, n), capability)
                launch = LaunchResources("flash", 128, 0, 65536, 0, 4, 4096, Code("", "", ""))
                cache.keep(Resources(one, cache.triton, (launch,)))


def _time(title: str, page: Callable[[], None], move: Callable[[AppTest, int], None]) -> None:
    """Draw, move, draw again; report the median and the slowest redraw."""
    app = AppTest.from_function(page, default_timeout=60)
    app.session_state["problem"], app.session_state["tile"] = PROBLEM, TILE
    seconds, sizes = [], []
    for step in range(REDRAWS):
        move(app, step)
        begun = time.perf_counter()
        app.run()
        seconds.append(time.perf_counter() - begun)
        assert not app.exception, app.exception
        sizes.append(sum(len(leaf.proto.SerializeToString()) for leaf in _leaves(app.main)))
    first, *rest = seconds
    print(f"{title}, {PROBLEM.label}, {REDRAWS} redraws")
    print(f"first draw      {first * 1e3:7.0f} ms")
    print(f"redraw, median  {statistics.median(rest) * 1e3:7.0f} ms   (goal: 500 ms)")
    print(f"redraw, slowest {max(rest) * 1e3:7.0f} ms")
    print(f"bytes sent      {max(sizes) / 1e3:7.0f} kB   (goal: 2,000 kB)\n")


def _step(app: AppTest, step: int) -> None:
    app.session_state["program"], app.session_state["kv_tile"] = 700, 10 * step


def _choose(app: AppTest, step: int) -> None:
    """Another tile becomes the current one."""
    app.session_state["kept.blocks.gpus"] = GPUS
    app.session_state["tile"] = TileConfig(BLOCKS[step % 5], BLOCKS[step // 5])


def main() -> None:
    """Both pages, one after the other."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BYTESCOPE_RUNS"], os.environ["BYTESCOPE_CACHE"] = f"{folder}/runs", f"{folder}/cache"
        _fill_cache()
        _time("tile schedule, 64×64 tiles", _tile_schedule, _step)
        _time("block sizes, 25 tiles on 4 GPUs", _block_sizes, _choose)


if __name__ == "__main__":
    main()
