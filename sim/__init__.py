"""servebound's ground floor: what a schedule is, what it costs, and the simulator of schedulers."""
