"""Workloads, one file each: a file defines ``WORKLOAD``; its docstring's first line says what it is.

Names and intent are those of the original benchmark; lengths, load and shares are ours (it publishes none).
"""
