"""Interrupt policies, one file each: a file defines ``POLICY``, a `sim.interrupts.policy.Policy`."""
