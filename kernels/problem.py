"""What is computed (AttentionProblem) and how it is cut into tiles (TileConfig); checked when built."""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from kernels.shown import shown

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
FLOAT32_BYTES = ELEMENT_BYTES["float32"]  # of one value of m, l, acc and LSE, whatever the inputs are
ORDERS = LINEAR, SAWTOOTH, LONGEST_FIRST, PERSISTENT = "linear", "sawtooth", "longest_first", "persistent"
MAX_HEAD_DIM = 256
MAX_BLOCK = 1024
MAX_SEQ_LEN = 2**24
MAX_HEADS = 2**20  # and as many batches
MAX_PROGRAMS = 2**31 - 1

# Metadata of a field that files written before it lack: it then has its default.
ADDED = {"added": True}

Int64Array = NDArray[np.int64]


class Refused(ValueError):
    """A request that cannot run; the message is a sentence for the user that says what to change."""


@dataclass(frozen=True)
class AttentionProblem:
    """Attention, O = softmax(Q Kᵀ / √head_dim + mask) V, and with `backward` its gradients dQ, dK, dV for a given dO.

    Q and O are [batch, heads, seq_len_q, head_dim]; K and V are [batch, kv_heads, seq_len_kv, head_dim]. Each gradient
    has the shape of its tensor.
    Query i stands at key position i + seq_len_kv - seq_len_q: masks are aligned bottom-right.
    `causal` hides keys after that position. `window` W keeps the keys less than W positions away, so a causal
    window of W sees W keys, itself included.

    Raises Refused if a size is impossible.
    """

    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    seq_len_q: int = 1024
    seq_len_kv: int = 1024
    head_dim: int = 64
    dtype: str = "float16"
    causal: bool = False
    window: int | None = None
    backward: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim"):
            _require_positive_int(name, getattr(self, name))
        if self.window is not None:
            _require_positive_int("window", self.window)
        for name in ("causal", "backward"):
            if not isinstance(getattr(self, name), bool):
                raise Refused(f"{name} is {shown(getattr(self, name))}; it must be true or false.")
        if not isinstance(self.dtype, str) or self.dtype not in ELEMENT_BYTES:
            raise Refused(f"dtype {shown(self.dtype)} is not supported; choose {', '.join(ELEMENT_BYTES)}.")
        for name in ("batch", "heads", "kv_heads"):
            if getattr(self, name) > MAX_HEADS:
                raise Refused(f"{name} {shown(getattr(self, name))} is above {MAX_HEADS}; choose a smaller value.")
        if self.heads % self.kv_heads:
            near = sorted(_divisors(self.heads), key=lambda divisor: abs(divisor - self.kv_heads))[:6]
            raise Refused(
                f"kv_heads {shown(self.kv_heads)} does not divide heads {self.heads}; "
                f"choose one of {', '.join(map(str, sorted(near)))}."
            )
        if self.head_dim > MAX_HEAD_DIM:
            raise Refused(f"head_dim {shown(self.head_dim)} is above {MAX_HEAD_DIM}; choose 1 to {MAX_HEAD_DIM}.")
        for name in ("seq_len_q", "seq_len_kv", "window"):
            if (getattr(self, name) or 0) > MAX_SEQ_LEN:
                raise Refused(f"{name} {shown(getattr(self, name))} is above {MAX_SEQ_LEN}; choose a smaller value.")
        if self.batch * self.heads * self.seq_len_q > MAX_PROGRAMS * 1024:
            raise Refused("batch × heads × seq_len_q is beyond any GPU grid; make one of them smaller.")

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of Q, K, V, O."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def sm_scale(self) -> float:
        """The factor on the scores, 1 / √head_dim."""
        return float(self.head_dim**-0.5)

    @property
    def padded_head_dim(self) -> int:
        """head_dim as tiles hold it: a power of two from 16 up, the rest masked zeros."""
        return max(16, 1 << (self.head_dim - 1).bit_length())

    @property
    def group(self) -> int:
        """Query heads that share one K/V head (GQA); 1 without sharing."""
        return self.heads // self.kv_heads

    def keys_of(self, queries: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The half-open key range [lo, hi) that each of these queries sees; lo == hi where it sees none."""
        position = queries + self.seq_len_kv - self.seq_len_q
        lo, hi = (
            np.full_like(position, bound) if shift is None else np.clip(position + shift, 0, self.seq_len_kv)
            for bound, shift in ((0, self._first_key), (self.seq_len_kv, self._end_key))
        )
        return lo, hi

    def visible_keys(self, first: int = 0, stop: int | None = None) -> tuple[Int64Array, Int64Array]:
        """keys_of the queries [first, stop)."""
        return self.keys_of(np.arange(first, self.seq_len_q if stop is None else stop, dtype=np.int64))

    @property
    def _first_key(self) -> int | None:
        """First key in sight, counted from a query's position; None where sight reaches back to key 0."""
        return None if self.window is None else 1 - self.window

    @property
    def _end_key(self) -> int | None:
        """End of the keys in sight, counted from a query's position; None where sight reaches to the last key."""
        return 1 if self.causal else self.window

    @property
    def blind_queries(self) -> int:
        """Queries that see no key: they are the first ones, and only where seq_len_q is above seq_len_kv."""
        if self._end_key is None:
            return 0
        return max(0, self.seq_len_q - self.seq_len_kv - self._end_key + 1)

    @property
    def visible_pairs(self) -> int:
        """Scores that the mask lets through, of one head."""
        top = self.seq_len_kv - self.seq_len_q
        before, until = (
            bound * self.seq_len_q if shift is None else _clipped_sum(top + shift, self.seq_len_q, self.seq_len_kv)
            for bound, shift in ((0, self._first_key), (self.seq_len_kv, self._end_key))
        )
        return until - before

    @property
    def is_masked(self) -> bool:
        """True where causal or window hides at least one score."""
        return self.visible_pairs < self.seq_len_q * self.seq_len_kv

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products over the visible scores.

        Forward makes two of 2 · pairs · head_dim, Q Kᵀ and P V. Backward makes five more: Q Kᵀ once again, Pᵀ dO,
        dO Vᵀ, dS K and dSᵀ Q.
        """
        products = 7 if self.backward else 2
        return 2 * products * self.batch * self.heads * self.visible_pairs * self.head_dim

    @property
    def tensor_bytes(self) -> dict[str, int]:
        """Size in bytes of each whole input and output tensor."""
        q = self.batch * self.heads * self.seq_len_q * self.head_dim * self.element_bytes
        kv = self.batch * self.kv_heads * self.seq_len_kv * self.head_dim * self.element_bytes
        forward = {"q": q, "k": kv, "v": kv, "o": q, "lse": self.batch * self.heads * self.seq_len_q * FLOAT32_BYTES}
        return forward | ({"do": q, "dq": q, "dk": kv, "dv": kv} if self.backward else {})

    @property
    def compulsory_bytes(self) -> int:
        """Q, K, V read once and O written once; K and V rows that the mask hides from every query do not count.

        Backward adds dO, read once, and dQ, dK, dV, written once. That it needs Q, K, V, O and LSE again counts for
        nothing: a kernel with room for them on chip would keep them from one pass to the other.
        """
        size, blind = self.tensor_bytes, self.blind_queries
        always = sum(size[tensor] for tensor in size if tensor not in ("k", "v", "lse"))
        if blind == self.seq_len_q:
            return always
        # The first query that sees anything looks back furthest, and the last one sees the last key.
        (first_key,), _ = self.visible_keys(blind, blind + 1)
        return always + (size["k"] + size["v"]) // self.seq_len_kv * (self.seq_len_kv - int(first_key))

    @property
    def score_bytes(self) -> int:
        """Size in bytes of the whole score matrix S in `dtype`, all batches and heads."""
        return self.batch * self.heads * self.seq_len_q * self.seq_len_kv * self.element_bytes

    @property
    def label(self) -> str:
        """Short name for headings: (batch, heads, seq, head_dim), dtype, mask, and the passes if there are two."""
        heads = f"{self.heads}" if self.group == 1 else f"{self.heads}/{self.kv_heads}"
        seq = f"{self.seq_len_q}" if self.seq_len_q == self.seq_len_kv else f"{self.seq_len_q}×{self.seq_len_kv}"
        mask = "causal" if self.causal else "full mask"
        window = "" if self.window is None else f", window {self.window}"
        passes = ", forward + backward" if self.backward else ""
        return f"({self.batch}, {heads}, {seq}, {self.head_dim}) {self.dtype}, {mask}{window}{passes}"


@dataclass(frozen=True)
class TileConfig:
    """How a tiled kernel cuts the problem; the names are those of the kernels' constexprs. Raises Refused.

    `order` is the order of programs and of their KV tiles: linear is rising; sawtooth scans K and V backwards in every
    second wave of programs; longest_first launches the programs in falling length; persistent launches as many programs
    as the GPU holds at once, which share out the Q tiles.
    """

    BLOCK_M: int = 64
    BLOCK_N: int = 64
    num_warps: int = 4
    num_stages: int = 3
    order: str = LINEAR

    def __post_init__(self) -> None:
        for part in fields(self):
            if part.name != "order":
                _require_positive_int(part.name, getattr(self, part.name))
        # A kernel that takes a whole row of scores at once has a BLOCK_N as long as that.
        for name, largest in (("BLOCK_M", MAX_BLOCK), ("BLOCK_N", MAX_SEQ_LEN), ("num_warps", 32)):
            _require_power_of_two(name, getattr(self, name), largest)
        if self.num_stages > 8:
            raise Refused(f"num_stages is {shown(self.num_stages)}; choose 1 to 8.")
        if self.order not in ORDERS:
            raise Refused(f"order {shown(self.order)} is not known; choose {', '.join(ORDERS)}.")


def require_a_tile(tile: TileConfig) -> None:
    """Raise Refused for a BLOCK_N beyond what is a tile and no longer a row."""
    _require_power_of_two("BLOCK_N", tile.BLOCK_N, MAX_BLOCK)


def _require_power_of_two(name: str, value: int, largest: int) -> None:
    if value & (value - 1) or value > largest:
        raise Refused(
            f"{name} is {shown(value)}; it must be a power of two up to {largest}, "
            f"such as {min(largest, 1 << max(0, value.bit_length() - 1))}."
        )


def _require_positive_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} is {shown(value)}; it must be a whole number.")
    if value < 1:
        raise Refused(f"{name} is {shown(value)}; it must be at least 1.")


def _clipped_sum(start: int, count: int, limit: int) -> int:
    """Σ min(max(x, 0), limit) over x = start … start + count − 1."""
    first, last = max(start, 0), min(start + count - 1, limit)
    inside = (first + last) * (last - first + 1) // 2 if last >= first else 0
    return inside + limit * max(0, start + count - 1 - max(limit, start - 1))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
