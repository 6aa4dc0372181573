"""`python -m kasen`, and the program `kasen`: signals are handled before anything else is loaded."""

from kasen import stops


def main() -> None:
    """Entry point."""
    stops.arm()
    from kasen.cli import main as run

    run()


if __name__ == "__main__":
    main()
