"""The error tree of Tidemark.

::

    TidemarkError
    ├── ConfigError              a setting is unknown, missing or wrong; a retry cannot help
    │   └── SecretError          the file of a secret cannot be read
    ├── DecodeError              bytes that cannot be what they should be; carries the position
    │   └── UnknownEventError    a binlog event that may carry data and is not understood
    ├── UnsupportedTypeError     a column type that is not captured yet
    ├── SchemaMismatchError      a table's columns are not what a reader planned for; read them again
    ├── SourceError              the database refuses, or is set up in a way that would lose data
    │   ├── RetriableSourceError the connection is gone; a retry may help
    │   ├── AccessDeniedError    the user or its password is refused
    │   └── HandshakeError       TLS is not offered, or a certificate is not trusted
    ├── StateError               the state topic has an unknown document, or cannot be read to its end
    ├── FencedError              another instance of this producer has taken over
    ├── PublishError             Kafka did not take the records
    │   ├── KafkaRefusalError    Kafka refuses a record, a topic or a transaction; a retry cannot help
    │   └── KafkaAccessError     Kafka refuses the user, or shows a certificate that is not trusted
    ├── SignalError              a signal that cannot be carried out; its text is the answer
    ├── RegistryError            the schema registry refuses or cannot be reached
    │   ├── RegistryUnavailableError  it does not answer; a retry may help
    │   ├── NoRegistryError      what answers is none
    │   └── RegistryAccessError  it refuses the user
    ├── LoadError                the merge job cannot read a chunk from the source; a retry may help
    │   └── LoadImpossibleError  no retry helps: the table's rows are to go through Kafka
    ├── KernelError              compiled code cannot be made, kept or loaded
    └── SinkError                a sink does not fit its checkpoint, or cannot be written
        ├── SchemaChangeError    a table changed in a way that its sink is not to follow, or cannot
        └── RetriableSinkError   a batch failed; the next attempt repeats it

Each message says what happened, where (position, topic, table) and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from schemas.overriding import override

_Result = TypeVar("_Result")


class TidemarkError(Exception):
    """Root of every error Tidemark raises on purpose."""


def result_or_error(work: Callable[[], _Result]) -> _Result | Exception:
    """Return the result of work, or the error that it raised, for a caller that judges the error and continues with other work."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - libraries and code of the user raise errors of every kind: the caller judges each
        return error


class ConfigError(TidemarkError):
    """Settings are unknown, missing or wrong. Each argument is one problem; of several, each is a line of its own."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one text for each setting."""
        return tuple(str(one) for one in self.args)

    @override
    def __str__(self) -> str:
        if len(self.args) < 2:
            return super().__str__()
        return "".join((f"{len(self.args)} settings are wrong:", *(f"\n    {one}" for one in self.problems)))


class SecretError(ConfigError):
    """The file of a secret cannot be read."""


class KernelError(TidemarkError):
    """Kernels could not be compiled, or what was compiled could not be kept or loaded."""


class DecodeError(TidemarkError):
    """Bytes from the source cannot be decoded.

    `position` is where, as a person can look it up (`binlog.000003:1155`, or a chunk's range).
    """

    def __init__(self, reason: str, position: str = "") -> None:
        super().__init__(f"{reason} (at {position})" if position else reason)
        self.reason = reason
        self.position = position

    def at(self, position: str) -> DecodeError:
        """Return the same error with the position, which only an outer layer knows."""
        return type(self)(self.reason, position)


class UnknownEventError(DecodeError):
    """A binlog event that may carry data and is not understood: reading on could lose rows."""


class UnsupportedTypeError(TidemarkError):
    """A column's type is not captured yet."""


class SchemaMismatchError(TidemarkError):
    """A table's columns are not the ones a reader was planned for."""


class SourceError(TidemarkError):
    """The source database refuses, or is set up in a way that would lose data."""


class RetriableSourceError(SourceError):
    """The connection to the source broke; a retry may help."""


class PreparedXaError(RetriableSourceError):
    """XA transactions are prepared: the client that prepared them ends them, maybe days later."""


class LogTornError(SourceError):
    """The server died while it wrote to a file of its log: the file is incomplete, and the log continues in `next_file`."""

    def __init__(self, message: str, next_file: str) -> None:
        super().__init__(message)
        self.next_file = next_file


class AccessDeniedError(SourceError):
    """The source refuses the user or its password."""


class HandshakeError(SourceError):
    """TLS with the source failed: it offers none, or its certificate is not trusted."""


class StateError(TidemarkError):
    """The state topic has a document that is not understood, or cannot be read to its end."""


class FencedError(TidemarkError):
    """Another instance with the same name has taken over; this one must stop."""


class PublishError(TidemarkError):
    """Kafka did not take the records."""


class KafkaRefusalError(PublishError):
    """Kafka refuses a record, a topic or a transaction: another attempt cannot help."""


class KafkaAccessError(PublishError):
    """Kafka refuses the user, or its certificate is not to be trusted."""


class SignalError(TidemarkError):
    """A signal that cannot be carried out; the message is the answer to its sender."""


class RegistryError(TidemarkError):
    """The schema registry refuses or cannot be reached."""


class RegistryUnavailableError(RegistryError):
    """The schema registry does not answer: a retry may help."""


class RegistryLostError(RegistryUnavailableError):
    """The schema registry lost what was registered, and gives other ids now: a new start takes those."""


class NoRegistryError(RegistryError):
    """What answers at the registry's address is none: no table has its schemas there."""


class RegistryAccessError(RegistryError):
    """The schema registry refuses the user."""


class LoadError(TidemarkError):
    """The merge job cannot read a chunk of a table from the source; another attempt may succeed."""


class LoadImpossibleError(LoadError):
    """The merge job can read no chunk of a table, however often it tries."""


ACCESS_ERRORS: Final = (SecretError, AccessDeniedError, KafkaAccessError, RegistryAccessError)
"""Credentials that are refused: wrong at a first start; later they are rotating perhaps, and a retry may help."""


def is_of_one_table(error: BaseException) -> bool:
    """Whether an error that publishing a table has raised says nothing of other tables, and no retry alone mends it."""
    of_table = (ConfigError, SourceError, StateError, UnsupportedTypeError, SchemaMismatchError, RegistryError)
    of_all = (RetriableSourceError, LogTornError, RegistryUnavailableError, NoRegistryError, *ACCESS_ERRORS)
    return isinstance(error, of_table) and not isinstance(error, of_all)


class SinkError(TidemarkError):
    """A sink does not fit its checkpoint or topics any more, is written by another job, or cannot be written."""


class EndingError(SinkError):
    """The process is asked to end: what was asked for is not done. No fault of a sink."""


class TransformError(SinkError):
    """A transform of a sink cannot be bound to the columns of a table."""


class SchemaChangeError(SinkError):
    """A table changed at the source in a way that its sink is not to follow, or cannot: the sink ends (`schema_changes`)."""


class RetriableSinkError(SinkError):
    """A batch failed, and another attempt may succeed: it is repeated with the same records."""
