"""The threads that kernels run on beside the one that launches them."""

def stop_workers() -> None:
    """Ends the pool's threads when they are through with what they do; memory they own is given
    back. A later launch starts others. Called when the interpreter exits."""

def pool_stats() -> dict[str, int]:
    """`workers`: threads of the pool; `launches`: kernels that were offered to them; `joined`: how
    often one took part in one; `scratch_bytes`: memory they own."""
