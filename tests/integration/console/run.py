"""`python -m tests.integration.console.run WORDS`: the command `sharegroups WORDS`."""

from sharegroups.cli import run

if __name__ == "__main__":
    run()
