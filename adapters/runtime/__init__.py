"""What runs a workload's program: processes, containers, or nothing at all (F21)."""
