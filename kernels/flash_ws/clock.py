"""What a timeline notes of a Q tile, in Gluon: when, and on which SM."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def note_time(pointer, program):
    """Store the GPU's clock."""
    now = gl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,r", [program], dtype=gl.int64, is_pure=False, pack=1
    )
    gl.store(pointer + program, now)


@gluon.jit
def note_sm(pointer, program):
    """Store which SM this is."""
    sm = gl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,r", [program], dtype=gl.int32, is_pure=False, pack=1)
    gl.store(pointer + program, sm)
