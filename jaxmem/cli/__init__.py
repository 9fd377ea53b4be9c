"""The `jaxmem` command: one file a subcommand, each with `add` (options) and `run`."""
