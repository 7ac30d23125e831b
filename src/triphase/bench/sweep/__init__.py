"""Many runs: hyper-parameter grids, ablations and the scheduler that executes them."""
