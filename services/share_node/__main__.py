"""`python -m share_node up`: the commands of this package without the client's command line."""

from share_node.commands import demo, init, scaler, state, up
from sharegroups.cli.group import ToolGroup

main = ToolGroup("share_node", commands=[demo, init, scaler, state, up])

if __name__ == "__main__":
    main()
