"""Sub-commands of ``servebound``, one file each.

A file defines ``configure(parser)``, which declares its arguments, and ``run(args) -> int``, which returns the exit
code (0 done, 1 asked-for goal not reached). Its docstring's first line is the help text. `bounds.cli_options` has
shared options.
"""
