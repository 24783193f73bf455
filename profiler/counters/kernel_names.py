"""Which kernels a pass launches where no counters can be read: CUPTI's callbacks need no permission."""

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.driver import cuda_driver
from profiler.cupti.launches import watched_launches
from profiler.cupti.library import CuptiError
from profiler.cupti.library import load as load_cupti
from profiler.launched import KERNELS, names_of
from profiler.run import DeviceInfo


def measure(load: Load) -> Reading:
    """kernels_launched of one pass, and their names by launch."""
    load.launch()  # what compiles, or is set up, at the first launch is none of the pass
    try:
        with watched_launches() as seen:
            load.launch(hook=seen.launch)
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    return names_of(seen.kernels)


def unavailable(device: DeviceInfo) -> str | None:
    """No GPU, so nothing is launched, or no library."""
    if device.compute_capability is None:
        return "no GPU here, so no kernel runs on one"
    try:
        cuda_driver()
        load_cupti()
    except CuptiError as error:
        return str(error)
    return None


COUNTER = Counter(
    name="kernel_names",
    title="Names of kernels (CUPTI callbacks)",
    order=46,
    phase="names",
    quantities=(KERNELS,),
    unavailable=unavailable,
    measure=measure,
    is_slow=True,  # cupti_range names them in the very pass that it counts
)
