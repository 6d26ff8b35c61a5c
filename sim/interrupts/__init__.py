"""Interrupting decodes for urgent requests: when to preempt whom, how, and on which traffic.

A server with few slots (or little KV memory) decodes long requests; an urgent one arrives and finds no room. A *policy*
(`sim.interrupts.policies`, one file each) says whether to interrupt, whom, and by which mechanism; a *workload*
(`sim.interrupts.workloads`, one file each) says what arrives. `sim.interrupts.server` is the scheduler that asks the
policy; it runs in the one engine (`sim.engine`) under the one set of rules (`sim.replay`).
"""
