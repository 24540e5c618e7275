"""`crystal-relay check`: whether a store does what a relay needs of it."""

from crystal_relay.cli.failures import RelayExitCode, told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import show_json, show_table, tell
from crystal_relay.cli.stores import StorePlace


def check(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Try a store out: write, read, list, be refused a second write, delete. Each step is timed.

    Over a bucket it also says, in a note, if only one relay process may use it. While a relay serves a directory, that
    relay does it. Exit code 8 if a step failed.
    """
    notes: list[str] = []
    with told(as_json=as_json):
        report = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.check(),
            announce=notes.append,
        )
        if as_json:
            show_json({"ok": report.ok, "steps": report.steps, "notes": notes})
        else:
            rows = [(step.name, f"{step.seconds * 1000:.1f} ms", step.error or "ok") for step in report.steps]
            show_table(("STEP", "TIME", "RESULT"), rows)
            for note in notes:
                tell(f"Note: {note}")
        if not report.ok:
            raise SystemExit(RelayExitCode.STORAGE)
