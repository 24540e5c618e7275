"""`crystal-relay sweep`: delete what is due now, as every relay does at intervals."""

from crystal_relay.cli.failures import RelayExitCode, told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import show_json, tell
from crystal_relay.cli.stores import StorePlace


def sweep(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Delete expired invites, condemned objects and dropped vaults now.

    A running relay does this by itself every few minutes. Exit code 8 if the store failed.
    """
    with told(as_json=as_json):
        report = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http), lambda operations: operations.sweep()
        )
        if as_json:
            show_json(report)
        else:
            if report.failures:
                tell(f"The store failed {report.failures} times; the next sweep continues.")
            parts = [f"{count} {kind}" for kind, count in report.deleted.items() if count]
            print(f"Swept in {report.seconds:.1f} s: {', '.join(parts) or 'nothing was due'}.")
        if report.failures:
            raise SystemExit(RelayExitCode.STORAGE)
