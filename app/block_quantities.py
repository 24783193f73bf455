"""What a tile is judged by: each quantity's name, spelling, and whether less or more of it is better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.style import capacity, error, flop_rate, seconds, significant, traffic

TIME, RATE, ERROR = "gpu_time_seconds", "flops_per_second", "relative_error"
L2_SM, HBM, REQUESTED = "l2_sm_bytes", "hbm_bytes", "requested_bytes"
REGISTERS, SPILLS, SHARED_MEMORY = "registers", "spill_bytes", "shared_memory"
CTAS, OCCUPANCY, WAVES = "ctas_per_sm", "occupancy", "waves"
LESS, MORE = -1, 1
MANY = 10.0

Unit = tuple[float, str]  # how many base units it is, and its name
BYTES: tuple[Unit, ...] = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
MEMORY: tuple[Unit, ...] = ((2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
SECONDS: tuple[Unit, ...] = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
RATES: tuple[Unit, ...] = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))
PERCENT: tuple[Unit, ...] = ((0.01, "%"),)
NUMBER: tuple[Unit, ...] = ((1.0, ""),)
SHARES: tuple[Unit, ...] = ((1.0, ""), (1e-3, "10⁻³"), (1e-6, "10⁻⁶"), (1e-9, "10⁻⁹"))


@dataclass(frozen=True)
class Quantity:
    """`better` is LESS, MORE, or 0 where neither is; `about` says of what it is, for captions and on hover."""

    key: str
    title: str
    about: str
    spell: Callable[[float | None], str]
    units: tuple[Unit, ...]  # the largest first
    better: int

    def unit(self, values: Sequence[float]) -> Unit:
        """One unit for all of them: the largest of which the middle one holds one, or the largest one MANY."""
        middle, largest = (sorted(values)[len(values) // 2], max(values)) if values else (0.0, 0.0)
        return next((unit for unit in self.units if middle >= unit[0] or largest >= MANY * unit[0]), self.units[-1])


def in_unit(value: float, unit: Unit) -> str:
    """A value as a bare number of a unit."""
    scaled = value / unit[0]
    return f"{scaled:,.0f}" if scaled == round(scaled) else significant(scaled, 2 if abs(scaled) < 0.1 else 3)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{significant(100 * value)}%".replace(".0%", "%").replace(".00%", "%")


def _memory(value: float | None) -> str:
    """Bytes on chip, exact enough to tell what decides how many CTAs fit."""
    return "–" if value is None else f"{value / 1024:,.5g} KiB" if value >= 1024 else f"{value:.0f} B"


def _waves(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


QUANTITIES = {
    quantity.key: quantity
    for quantity in (
        Quantity(TIME, "Time", "GPU time of one pass, the median", seconds, SECONDS, LESS),
        Quantity(RATE, "Speed", "useful FLOP a second", flop_rate, RATES, MORE),
        Quantity(L2_SM, "L2↔SM", "bytes that crossed between L2 and the SMs", traffic, BYTES, LESS),
        Quantity(HBM, "HBM", "bytes read from and written to HBM", traffic, BYTES, LESS),
        Quantity(REQUESTED, "Requested", "bytes that the programs' loads and stores ask for", traffic, BYTES, LESS),
        Quantity(ERROR, "Error", "‖O − reference‖ / ‖reference‖, the reference in float64", error, SHARES, LESS),
        Quantity(REGISTERS, "Registers", "of one thread", _count, NUMBER, 0),
        Quantity(SPILLS, "Spills", "bytes of local memory of one thread", capacity, MEMORY, LESS),
        Quantity(SHARED_MEMORY, "Shared memory", "of one CTA", _memory, MEMORY, 0),
        Quantity(CTAS, "CTAs per SM", "that one SM holds at once", _count, NUMBER, MORE),
        Quantity(OCCUPANCY, "Occupancy", "warps that an SM holds, of the most it can", _percent, PERCENT, MORE),
        Quantity(WAVES, "Waves", "programs of the problem / programs at once", _waves, NUMBER, 0),
    )
}
MEASURED_HERE = (TIME, RATE, L2_SM, HBM, ERROR)
COMPILED_HERE = (REGISTERS, SPILLS, SHARED_MEMORY, CTAS, OCCUPANCY, WAVES)
COMPILED = "compiled"  # the source of what the compiler tells
