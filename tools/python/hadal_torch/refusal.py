"""What the user named cannot be converted."""


class Refusal(Exception):
    """The message says what, why, and what can be done."""
