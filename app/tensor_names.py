"""How tensors are spelled on the pages: Q, K, V, S, P, O, their gradients as dQ, the softmax state as in the papers."""

from app.style import STATE

_TITLES = {f"d{letter.lower()}": f"d{letter}" for letter in "QKVSPO"}
_TITLES |= {"delta": "delta", "dq_sum": "ΣdQ", "dp_p": "dP∘P"}


def tensor_title(name: str) -> str:
    """A tensor's name as people write it."""
    return _TITLES.get(name) or (name if name in STATE else name.upper())
