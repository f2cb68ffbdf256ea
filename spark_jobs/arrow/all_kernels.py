"""Every kernel of the workers."""

from spark_jobs.arrow.jit import GROUP


def load() -> None:
    """Load them; they are compiled first where they are not yet. Raises `KernelError` where that fails."""
    GROUP.load()
