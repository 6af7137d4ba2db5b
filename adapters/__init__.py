"""The outside world behind ports: hardware, runtimes, engines, models, clocks, certificates."""
