"""Port, real adapter and fake, side by side."""
