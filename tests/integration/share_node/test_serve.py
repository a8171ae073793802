"""`python -m share_node serve ROLE`: its help and errors, and the older commands that do the same."""

import subprocess
import sys

ALL = "group_coordinator, partition_leader, share_coordinator"


def said(*words: str) -> tuple[int, str, str]:
    """Run a program that ends by itself; returns its status, standard output and standard error."""
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_help_names_the_roles() -> None:
    status, reported, wrong = said("share_node", "serve", "--help")
    assert (status, wrong) == (0, "")
    assert "python -m share_node serve ROLE NAME=VALUE" in reported
    assert f"ROLE is one of {ALL}." in reported
    assert "  serve " in said("share_node", "--help")[1]


def test_no_role_or_a_wrong_one_is_answered_with_the_roles() -> None:
    status, reported, wrong = said("share_node", "serve")
    assert (status, reported) == (1, "")
    assert f"ROLE is one of {ALL}." in wrong
    assert said("share_node", "serve", "leader", "a=b") == (1, "", f"Error: no role 'leader'. There are {ALL}.\n")
    several = said("share_node", "serve", "group_coordinator,leader", "a=b")
    assert several == (1, "", f"Error: no role 'leader'. There are {ALL}.\n")
    hyphened = said("share_node", "serve", "partition-leader")
    assert hyphened == (1, "", "Error: no role 'partition-leader'. Did you mean 'partition_leader'?\n")
    assert "Did you mean 'serve'?" in said("share_node", "sevre")[2]


def test_a_role_starts_without_the_packages_of_the_command_line() -> None:
    """The extra `server` alone is enough to run a role."""
    program = (
        "import runpy, sys; sys.modules['click'] = sys.modules['rich'] = None; "
        "sys.argv[1:] = ['serve', 'group_coordinator', '--help']; runpy.run_module('share_node', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
