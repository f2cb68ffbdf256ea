"""Every kernel of the producer: of the log, of result sets and of the row codec."""

from producer.binlog import jit as binlog
from producer.codec import jit as codec


def load() -> None:
    """Load them; they are compiled first where they are not yet, for up to a minute. Raises `KernelError` where that fails."""
    for module in (binlog, codec):
        module.GROUP.load()
