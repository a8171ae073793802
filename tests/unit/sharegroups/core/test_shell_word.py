"""A recommended command can be pasted, whatever the name in it is."""

from __future__ import annotations

import shlex

import pytest

from sharegroups.core.shell_word import quote


@pytest.mark.parametrize("name", ["orders", "a.b_c-1", "my orders", "it's", "", "$(rm x)", "a;b", "ü", "a\nb", "`x`"])
def test_a_shell_reads_the_name_as_one_word(name: str) -> None:
    assert shlex.split(f"create {quote(name)} --more") == ["create", name, "--more"]
    assert (quote(name) == name) == (shlex.quote(name) == name)
