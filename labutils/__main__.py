"""`python -m labutils`, and where the command `lab16` starts."""

import sys


def main() -> None:
    """Run the command; Ctrl-C while PyTorch is still being imported ends it quietly too."""
    try:
        from labutils import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
