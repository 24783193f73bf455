"""Registers of a thread of the kernels in Gluon: when a program starts, and when its warps have shared them out."""

from triton.experimental.gluon import language as gl

REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS = 168, gl.constexpr(240), gl.constexpr(24)
