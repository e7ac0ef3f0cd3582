"""The error a user can act on."""

import pytest

from custom_components.errors import UserError, render_problems


def test_one_problem_is_its_own_message():
    error = UserError("batch_size: found 0, expected 1 or more")
    assert str(error) == "batch_size: found 0, expected 1 or more"
    assert error.exit_code == 2


def test_several_problems_are_numbered_in_one_message():
    assert render_problems(["first", "second"]) == "2 problems:\n  1. first\n  2. second"
    assert str(UserError("first", "second")) == render_problems(["first", "second"])


def test_an_error_without_a_problem_is_a_programmers_mistake():
    with pytest.raises(ValueError, match="at least one problem"):
        UserError()
