"""`crystal-relay`: runs a relay and looks after it. The only place of this package that reads the environment.

app       the list of verbs        serve     composes a relay and runs it
stores    opens what --store names options   what several verbs take
settings  what comes from the environment    failures  errors to words and exit codes
"""


def main() -> None:
    """The entry point of `crystal-relay`."""
    # Here, for an extension's commands import modules of this package, and `app` imports them.
    from crystal_relay.cli.app import app

    app()
