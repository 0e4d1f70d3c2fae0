"""The command ``dynarule``, one file a group of subcommands."""
