"""Mathematics, schedule and bytes of attention kernels; knows nothing of clocks or pixels."""
