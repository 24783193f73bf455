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


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """So many barriers, each of which opens after so many arrivals, and the bytes that it was told to expect."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(COUNT):
        mbarrier.init(made.index(stage), count=ARRIVALS)
    return made


@gluon.jit
def wait_for_both():
    """Hardware barrier 10: the 256 threads of the two groups that compute."""
    gl.inline_asm_elementwise("bar.sync 10, 256; mov.b32 $0, 0;", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)
