"""Rerun the paper's experiments: cells in parallel, kept on disk as they finish, judged at the end."""
