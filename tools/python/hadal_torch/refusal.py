"""What the user named cannot be converted."""

from pyhadal.refusal import Refusal

__all__ = ["Refusal", "damaged"]


def damaged(message: str) -> Refusal:
    """For files whose contents contradict themselves or their format."""
    return Refusal(message, exit_code=3)
