"""The errors of messages that cannot be read or written."""


class MalformedMessageError(ValueError):
    """The bytes are not a message of the expected kind: cut, damaged, too long, or a value that its field cannot have.

    Its text says what was found. The connection that sent them cannot be read further (KL-33).
    """


class TooManyElementsError(MalformedMessageError):
    """The message has more elements than it may have, or than its reader was to read."""


class UnwritableMessageError(ValueError):
    """A message has a value that its field cannot hold in the version that is written."""
