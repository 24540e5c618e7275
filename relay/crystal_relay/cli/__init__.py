"""`crystal-relay`: run and administer a relay. The only part of this package that reads the environment.

app       the list of verbs        serve     composes a relay and runs it
stores    opens what --store names options   what several verbs take
settings  what comes from the environment    failures  errors to words and exit codes
"""


def main() -> None:
    """The entry point of `crystal-relay`."""
    # Imported here, because `app` imports extensions' commands, which import modules of this package.
    from crystal_relay.cli.app import app

    app()
