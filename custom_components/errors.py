"""The error a user can act on: printed once, without a traceback, exit code 2."""

from collections.abc import Sequence


class UserError(ValueError):
    """One or more mistakes in a config, a file or the data that the user can mend.

    Args:
        problems: One sentence each: the key or row, what was found, what to do.

    Raises:
        ValueError: If ``problems`` is empty.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        if not problems:
            raise ValueError("UserError needs at least one problem")
        self.problems: tuple[str, ...] = problems
        super().__init__(render_problems(problems))


def render_problems(problems: Sequence[str]) -> str:
    """Return the problems as one message, numbered when there are several."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"{len(problems)} problems:"]
    lines += [f"  {number}. {problem}" for number, problem in enumerate(problems, start=1)]
    return "\n".join(lines)
