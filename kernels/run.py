"""The contract of every kernel's passes: what they take, what they give back, how they tell their launches apart."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.problem import AttentionProblem, TileConfig

LaunchHook = Callable[[str], AbstractContextManager[object]]


@dataclass
class StateTrace:
    """Where a traced kernel writes its softmax state; all tensors are float32 on the kernel's device.

    Batch, head, rows and Q tile are those of the score matrix that the kernel cuts (see TileGrid).
    Rows [row_start, row_stop) of one (batch, head) are recorded after every KV tile, so m, l, alpha and acc_norm are
    [rows, kv_tiles]; NaN marks tiles the mask skips. m and l are in natural units: l is the sum of exp(s - m), alpha
    the factor exp(m_old - m_new), acc_norm the Euclidean norm of the row of acc. acc [acc_steps, BLOCK_M, head_dim] is
    the whole accumulator of Q tile `acc_tile` after the KV tiles acc_start, acc_start + acc_stride, … scores
    [score_rows, seq_len_kv] are the scaled scores of the rows from score_start on, −inf where the mask hides one.
    """

    batch: int
    head: int
    row_start: int
    row_stop: int
    m: torch.Tensor
    l: torch.Tensor  # noqa: E741 - the name in the papers
    alpha: torch.Tensor
    acc_norm: torch.Tensor
    acc: torch.Tensor
    acc_tile: int
    acc_start: int
    acc_stride: int
    scores: torch.Tensor
    score_start: int


@dataclass
class Timeline:
    """Where a timed kernel writes each Walk program's SM (int32) and %globaltimer at start and end (int64, ns)."""

    sm: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor


@dataclass(frozen=True)
class Gradients:
    """dQ like q, dK like k, dV like v."""

    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor


@dataclass(frozen=True)
class Output:
    """O [batch, heads, seq_len_q, head_dim]; LSE float32 [batch, heads, seq_len_q] where the kernel writes one.

    p is what a forward pass keeps for its backward pass where that does not make P anew. `gradients` are there once
    that has run.
    """

    o: torch.Tensor
    lse: torch.Tensor | None = None
    p: torch.Tensor | None = None
    gradients: Gradients | None = None

    def named(self) -> dict[str, torch.Tensor]:
        """What a pass gives back, by the tensors' names."""
        found = {"o": self.o} | ({} if self.lse is None else {"lse": self.lse})
        return found if self.gradients is None else found | vars(self.gradients)


class Forward(Protocol):
    """A kernel's forward pass; q, k, v may be strided views.

    Each launch runs inside `with launch(name):`. `finite` promises that v holds no NaN and no infinity, as drawn
    inputs do; without it, hidden non-finite rows of v are kept from the result at extra cost (0 · NaN is NaN). A
    kernel module that offers prepare(problem, tile, device) is given its result as `prepared`: what can be built once,
    outside the measured passes.
    Kernels with `has_trace` also take trace: StateTrace | None, those with `has_timeline` timeline: Timeline | None.
    """

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        problem: AttentionProblem,
        tile: TileConfig,
        launch: LaunchHook = nullcontext,
        finite: bool = False,
        prepared: object = None,
    ) -> Output: ...


class Backward(Protocol):
    """A kernel's backward pass: the gradients of q, k, v for a gradient `do` of O, finite and shaped like it.

    q, k, v and tile are what its forward pass was given, and `output` is what that gave. Each launch runs inside
    `with launch(name):`. `finite` promises that q, k and v hold no NaN and no infinity; without it, what a mask hides
    is kept from the gradients of what does not see it, as in Forward.
    """

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        output: Output,
        do: torch.Tensor,
        problem: AttentionProblem,
        tile: TileConfig,
        launch: LaunchHook = nullcontext,
        finite: bool = False,
    ) -> Gradients: ...
