"""The error for what the user named: a missing file, a package that is not installed, runs that cannot be compared."""


class Refusal(Exception):
    """The message says what, why, and what can be done. `exit_code`: of the command, as the program's (2: bad usage)."""

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(message)
        self.exit_code = exit_code
