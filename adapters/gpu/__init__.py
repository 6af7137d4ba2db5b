"""What hardware this machine has, neutral of vendor (F16, F17)."""
