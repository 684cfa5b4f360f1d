"""The one exception that the lab raises for a mistake in what it was given."""


class LabError(ValueError):
    """Bad input: the message is one line that names the value and what is allowed."""
