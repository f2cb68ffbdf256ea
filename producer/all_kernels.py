"""Every kernel of the producer: of the log, of result sets and of the row codec."""

from mysqlio.packet_kernels import GROUP as PACKETS
from producer.binlog.log_kernels import GROUP as LOG
from rowcodec.codec_kernels import GROUP as CODEC


def load() -> None:
    """Load them; they are compiled first where they are not yet, for up to a minute. Raises `KernelError` where that fails."""
    for group in (LOG, PACKETS, CODEC):
        group.load()
