"""How tensors are spelled on the pages: Q, K, V, S, P, O in capitals, the softmax state as in the papers."""

from app.style import STATE


def tensor_title(name: str) -> str:
    """A tensor's name as people write it."""
    return name if name in STATE else name.upper()
