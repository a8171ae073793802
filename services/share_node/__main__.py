"""`python -m share_node up`: the commands of this package without the client's command line."""

import click

from share_node.commands import demo, state, up

main = click.Group("share_node", commands=[demo, state, up])

if __name__ == "__main__":
    main()
