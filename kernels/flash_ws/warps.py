"""What warps with different tasks have between them, in Gluon: registers, and barriers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

FIRST, SECOND = gl.constexpr(0), gl.constexpr(1)  # of the groups that compute
# Of a thread: when the program starts, and after what they take from each other.
REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS = 168, gl.constexpr(240), gl.constexpr(24)


@gluon.jit
def full_and_empty(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers of so many stages: full has one arrival and bytes, empty an arrival of each who reads."""
    full = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(COUNT):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=ARRIVALS)
    return full, empty
