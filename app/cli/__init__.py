"""The `vqueue` command, one file per group of subcommands."""
