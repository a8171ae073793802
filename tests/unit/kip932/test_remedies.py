"""What a refusal proposes, and how a client fits it to what it needs."""

from __future__ import annotations

import shlex

import pytest

from kip932.remedies import ADMINISTRATOR, ANY_TOPIC, allowing, explaining, fitted, proposes

WORKER = "--worker --topic jobs --group mail"
ODD = ["it's", "a b", "x --command-config FILE y", "$(id)", "\x1b[2J", "é", "'", '"', "--topic NAME "]


@pytest.mark.rule("CL-164")
@pytest.mark.parametrize("name", ODD)
def test_the_command_for_one_operation_becomes_that_for_all_of_a_client_whatever_the_names_are(name: str) -> None:
    said = "may not READ. " + allowing(f"User:{name}", f"--operation READ --group {shlex.quote(name)}") + "; and more"
    assert fitted(said, WORKER, "jobs") == "may not READ. " + allowing(f"User:{name}", WORKER) + "; and more"


@pytest.mark.rule("CL-164")
def test_a_command_that_explains_keeps_its_operation_and_gets_the_name_of_the_only_topic() -> None:
    said = explaining("User:a", "", f"--operation READ {ANY_TOPIC}")
    assert fitted(said, WORKER, "my jobs") == explaining("User:a", "", "--operation READ --topic 'my jobs'")
    assert fitted(said, WORKER, None) == said
    known = explaining("User:a", "10.0.0.7", "--operation READ --topic jobs")
    assert fitted(known, WORKER, "other") == known


@pytest.mark.rule("CM-61")
def test_a_denial_is_explained_and_no_entry_proposed_that_could_not_outweigh_it() -> None:
    said = explaining("User:a", "10.0.0.7", "--operation READ --topic jobs")
    before, mark, command = said.partition(ADMINISTRATOR)
    assert before == "An entry denies it, whatever other entries allow. "
    assert mark
    assert shlex.split(command.partition(": ")[2]) == [
        *("sharegroups", "acls", "explain", "--principal", "User:a", "--host", "10.0.0.7"),
        *("--operation", "READ", "--topic", "jobs", "--command-config", "FILE"),
    ]
    assert "acls add" not in said


def test_a_text_with_a_command_or_a_setting_proposes_something() -> None:
    assert proposes(allowing("User:a", "--cluster"))
    assert proposes("set super.users on the nodes")
    assert not proposes("User:a may not READ GROUP 'g'")
