"""HBM and L2↔SM bytes by Nsight Compute: the referee, and the way where CUPTI cannot be used in process."""

import os

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.permission import DRIVER_PARAMS, PROCESS_STATUS, restricted, under_profiler
from profiler.ncu import QUANTITIES, measure_loads
from profiler.ncu_csv import NcuError
from profiler.ncu_program import find, lacks
from profiler.run import DeviceInfo


def measure(load: Load) -> Reading:
    """hbm_read_bytes, hbm_write_bytes and l2_sm_bytes of one pass, and the same with the time for each launch."""
    if not load.spec:
        raise Unavailable(
            "ncu profiles a process of its own, which has neither this function nor these tensors; use "
            "`python -m profiler run --kernel module:function --counters ncu`"
        )
    (reading,) = measure_loads((load.spec,), load.device)
    return reading


def unavailable(device: DeviceInfo) -> str | None:
    """No GPU, no permission, or no ncu that knows the chip, each with what would allow it."""
    if device.compute_capability is None:
        return "no GPU here, so there is nothing for ncu to profile"
    if reason := under_profiler(os.environ) or restricted(DRIVER_PARAMS, PROCESS_STATUS):
        return reason
    try:
        return lacks(find(), device)
    except NcuError as error:
        return str(error)


COUNTER = Counter(
    name="ncu",
    title="Nsight Compute (ncu)",
    order=50,
    phase="referee",
    quantities=QUANTITIES,
    unavailable=unavailable,
    measure=measure,
    is_slow=True,
)
