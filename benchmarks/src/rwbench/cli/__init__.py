"""The command ``rwbench``, one file a subcommand."""
