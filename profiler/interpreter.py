"""Whether Triton's interpreter works with the packages installed here; free of torch and Triton."""

import re
from importlib.metadata import PackageNotFoundError, version

# Triton 3.7 mended its interpreter for numpy 2.4, which no longer turns arrays of one element into numbers.
MENDED_TRITON, BREAKING_NUMPY = (3, 7), (2, 4)


def why_not_interpreted() -> str | None:
    """Why kernels cannot be interpreted, with what to install; None if they can."""
    try:
        triton, numpy = version("triton"), version("numpy")
    except PackageNotFoundError as missing:
        return f"{missing.name} is not installed; install the versions of requirements.txt"
    if _pair(triton) < MENDED_TRITON and _pair(numpy) >= BREAKING_NUMPY:
        return f"the interpreter of Triton {triton} fails with numpy {numpy}; install numpy below 2.4, or Triton 3.7"
    return None


def _pair(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
