"""How long a user may let one piece of work take."""

from kernels.problem import Refused

MOST_SECONDS = 7 * 24 * 3_600.0


def require_possible_timeout(seconds: float) -> None:
    """Raise Refused for a time-out of 0, and for one that no work needs and no clock may count to."""
    if not seconds > 0:
        raise Refused(f"The timeout is {seconds:g} s; choose more than 0.")
    if seconds > MOST_SECONDS:
        raise Refused(f"The timeout is {seconds:g} s; choose up to {MOST_SECONDS:,.0f}, a week.")
