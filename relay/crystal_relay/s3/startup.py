"""Opens a bucket: checks access, conditional writes, and other processes."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from crystal_relay.errors import BadReply, StoreUnavailable, Unusable
from crystal_relay.notify import Notifier
from crystal_relay.s3.address import S3Address
from crystal_relay.s3.bucket import Bucket
from crystal_relay.s3.claim import BucketClaim, ClaimTimes, boot_time, refuse_if_claimed
from crystal_relay.s3.direct import is_reachable, takes_exactly_what_was_signed
from crystal_relay.s3.failures import Denied
from crystal_relay.s3.probe import ProbeResult, check_access, probe, remember, remembered
from crystal_relay.s3.settings import Conditions, S3Settings
from crystal_relay.s3.store import S3Store


async def open_s3_store(
    address: S3Address,
    *,
    announce: Callable[[str], None],
    notifier: Notifier | None = None,
    settings: S3Settings | None = None,
    claim_times: ClaimTimes | None = None,
    session: Any = None,
    for_command: bool = False,
    clock: Callable[[], float] = time.time,
) -> S3Store:
    """Open the store in a bucket, after some 200 requests to test it.

    `for_command`: two requests are enough if a relay or a command has tested it in the last week. `announce` is called with
    findings for the operator. `session`: the SDK's, with credentials; None takes what its own chain finds. Raises Unusable
    (bucket, credentials, region), InUse (another relay is there, and only one can be), StoreUnavailable.
    """
    settings = settings if settings is not None else S3Settings()
    times = claim_times if claim_times is not None else ClaimTimes()
    bucket = await asyncio.to_thread(Bucket, address, settings, session)
    try:
        known = await asyncio.to_thread(remembered, bucket, clock()) if for_command else None
        finding = await asyncio.to_thread(_tested, bucket, clock) if known is None else known
        if finding.conditions is Conditions.HONOURED:
            await refuse_if_claimed(bucket, times, clock=boot_time, announce=announce)
            exact = (
                not for_command  # it serves no device
                and is_reachable(address.endpoint)
                and await asyncio.to_thread(takes_exactly_what_was_signed, bucket)
            )
            return S3Store(
                bucket, finding.conditions, settings=settings, notifier=notifier, direct_puts=exact
            )
        announce(
            f"The object store does not honour conditional writes: {finding.why}. This relay has to be the only one on "
            "the bucket. It puts writes in order itself, and a second relay refuses to start."
        )
        claim = BucketClaim(bucket, times, clock=boot_time, announce=announce)
        await claim.take()
    except Denied as error:
        bucket.close()
        raise Unusable(f"{address}: {error}", hint=error.hint) from None
    except (StoreUnavailable, BadReply) as error:
        bucket.close()
        raise type(error)(f"{address}: {error}", hint=error.hint) from None
    except BaseException:
        bucket.close()
        raise
    return S3Store(
        bucket,
        finding.conditions,
        settings=settings,
        notifier=notifier,
        may_write=claim.check,
        released=claim.aclose,
    )


def _tested(bucket: Bucket, clock: Callable[[], float]) -> ProbeResult:
    check_access(bucket)
    result = probe(bucket)
    remember(bucket, result, clock())
    return result
