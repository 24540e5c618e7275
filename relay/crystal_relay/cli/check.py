"""`crystal-relay check`: test a store."""

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
    """Test a store: write, read, list, refuse a second write, delete.

    Shows the time of each step. For a bucket a note says if only one relay process may use it. If a relay serves the
    directory, that relay runs the test. Exit code 8 if a step failed.
    """
    notes: list[str] = []
    with told(as_json=as_json):
        report = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.check(),
            announce=notes.append,
            tests_bucket=True,
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
