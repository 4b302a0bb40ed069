"""Command line: make the branch `space`, which is pushed to a Hugging Face Space."""

from __future__ import annotations

import argparse

from inspector.space import publish


def main() -> None:
    """Make the branch and print the command that pushes it."""
    parser = argparse.ArgumentParser(prog="python -m inspector.space", description=__doc__)
    parser.add_argument(
        "--kind", choices=publish.HARDWARE, default="cpu", help="The hardware of the Space."
    )
    kind = parser.parse_args().kind
    try:
        publish.git("branch", "--force", "space", publish.commit(kind))
    except (RuntimeError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    print("git push --force https://huggingface.co/spaces/OWNER/NAME space:main")


if __name__ == "__main__":
    main()
