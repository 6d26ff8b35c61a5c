"""Good schedules for workloads of any size: where the upper end of the interval comes from."""
