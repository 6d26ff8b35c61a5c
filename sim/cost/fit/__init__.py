"""Cost models from measurements: read profiles, fit linear and max-affine costs, and say how far off they are.

Imports pandas and scipy, so `sim.cost` itself never loads it.
"""
