"""The metrics behind what a run did inside the chip: tensor-core operations, spills, and what L2 hit."""

import re
from collections.abc import Collection
from dataclasses import dataclass

# The types that tensor cores take for inputs of float16, bfloat16 and float32; Turing counts the three as one.
TENSOR_TYPES = frozenset({"fp16", "bf16", "tf32"})
TENSOR = re.compile(r"sm__ops_path_tensor_src((?:_[a-z]+\d+)+)(_dst_[a-z]+\d+)?")

SINGLE = {
    "spill_read_bytes": "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
    "spill_write_bytes": "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
}
# Not CUPTI's own rate, which divides counts of two passes: where L2 merges reads of several SMs, those differ by a
# tenth. The misses hardly do, so that hits / (hits + misses) is steady.
HITS, MISSES = (f"lts__t_sectors_srcunit_tex_lookup_{what}.sum" for what in ("hit", "miss"))


@dataclass(frozen=True)
class DetailMetrics:
    """For each quantity the metrics of `chip` whose sum it is, none where the chip has none.

    Together they take more than one pass on every chip: the metrics of tensor cores alone do, from Ampere on.
    """

    chip: str
    parts: dict[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """What a MetricsHost or RangeProfiler takes."""
        return tuple(name for names in self.parts.values() for name in names)

    def detail(self, values: dict[str, float]) -> dict[str, float]:
        """A range's values under the names of the measurements: FLOP, bytes and percent of what the chip can count."""
        found = {quantity: sum(values[name] for name in names) for quantity, names in self.parts.items() if names}
        if "l2_hit_percent" in found:
            # All that was asked is hits and misses; work that asks nothing of L2 has no rate.
            asked = found.pop("l2_hit_percent")
            found |= {"l2_hit_percent": 100 * values[HITS] / asked} if asked else {}
        return found

    def why_missing(self, quantity: str) -> str:
        """The reason why a quantity has no value."""
        if self.parts.get(quantity):
            return "the work asked nothing of L2"
        others = {"tensor_flops": "sm__ops_path_tensor_src_… for fp16, bf16 or tf32", "l2_hit_percent": HITS}
        wanted = SINGLE.get(quantity) or others[quantity]
        return f"CUPTI has no metric {wanted} for the chip {self.chip}, so this cannot be counted on it"


def detail_metrics(chip: str, base_metrics: Collection[str]) -> DetailMetrics:
    """Picks the metrics by the names the chip has."""
    parts = {"tensor_flops": tensor_metrics(base_metrics)}
    for quantity, name in SINGLE.items():
        parts[quantity] = (name,) if name.split(".")[0] in base_metrics else ()
    rate = (HITS, MISSES)
    parts["l2_hit_percent"] = rate if all(name.removesuffix(".sum") in base_metrics for name in rate) else ()
    return DetailMetrics(chip, parts)


def tensor_metrics(base_metrics: Collection[str]) -> tuple[str, ...]:
    """Every metric that counts floating-point operations of tensor cores on TENSOR_TYPES, each operation once.

    They are told by their sources, whatever the dtype of the work: a float32 kernel that runs on TF32 shows, and so
    does a library's detour over another type. Names that single out an instruction or sparsity count parts of these.
    """
    found = {}
    for name in base_metrics:
        match = TENSOR.fullmatch(name)
        if match and TENSOR_TYPES & set(match[1].split("_")):
            found[name] = match[2]
    # GH100 has one metric for fp16 into both accumulators; a chip with that and the single ones would count twice.
    counted_by_source = {name for name, accumulator in found.items() if accumulator is None}
    return tuple(
        f"{name}.sum"
        for name, accumulator in sorted(found.items())
        if accumulator is None or name.removesuffix(accumulator) not in counted_by_source
    )
