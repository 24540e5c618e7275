"""The protocol's notices as sentences for `crystal status`."""

from crystal_mirror.notices import Notice

_TEXTS = {
    Notice.LOG_ROLLED_BACK: "The relay lost part of the device log. Devices put it back; if it happens again, distrust it.",
    Notice.LOG_FORKED: "The relay shows a different device log than before. Do not trust this relay.",
    Notice.LOG_DAMAGED: "The relay's copy of the device log is damaged. The Core, or a machine with the root, puts it back.",
    Notice.MIRROR_ROLLED_BACK: "The relay lost part of the mirror. The Core puts it back.",
    Notice.MIRROR_FORKED: "The relay shows a different mirror than before. Do not trust this relay.",
    Notice.MIRROR_TAMPERED: "The relay had shown this device other bytes in the mirror than it does now. They were not taken.",
    Notice.MIRROR_DAMAGED: "Part of the mirror is damaged or missing at the relay. The Core puts it back.",
    Notice.MIRROR_GAP: "The relay withholds part of the mirror.",
    Notice.MIRROR_UNREADABLE: "Part of the mirror cannot be opened here. It is kept; a newer version may read it.",
    Notice.STREAM_TAMPERED: "The relay holds foreign bytes among a device's entries. They were not taken.",
    Notice.STREAM_LOST: "The relay lost entries of this device. They are put back.",
    Notice.STREAM_UNREADABLE: "Entries of a device cannot be opened here. They are kept and tried again.",
    Notice.PEER_AHEAD: "A device knows a device log that the relay does not show here.",
    Notice.RESTORED: "A device was restored from a backup or copied. It goes on under a new name of its stream.",
    Notice.COPIED: "A copy of this device, or this device before it was restored, wrote to the relay with its keys.",
    Notice.CLAIM_LOST: "The device log names this machine as the Core, but this machine has lost its own record of that.",
    Notice.QUARANTINED: "The memory here differed from the Core's. It is being compared entry by entry.",
    Notice.MODEL_DIFFERS: "The vault's vectors are of another model than this Core's: new text is found by its words only.",
    Notice.SUPERSEDED: "Another device has taken the lead; this one goes on as a Node.",
    Notice.EPOCH_OPEN: "The relay does not show where a revoked Core's time ended. What it shows of that time is not taken.",
    Notice.REBUILT: "The memory here was rebuilt from the log.",
    Notice.HELD_REVOKED: "A revoked device wrote on after it was out. Nobody takes it; `crystal devices held DEVICE` decides.",
    Notice.SNAPSHOT_LOST: "The relay lacks part of a snapshot of the memory, or shows it damaged. The Core makes another one.",
    Notice.SNAPSHOT_DAMAGED: "A snapshot did not hold what it states, or nobody announced it. It was not taken.",
    Notice.FLOOR_PASSED: "This machine was away for longer than the log is kept. It read a snapshot instead; nothing is lost.",
    Notice.KEYS_WITHHELD: "The newest keys were not sealed to this device, so nothing new can be sent. Pair it again.",
}


def notice_text(name: str) -> str:
    """The sentence for a notice's name; the name itself if this version does not know it."""
    try:
        return _TEXTS.get(Notice(name), name)
    except ValueError:
        return name
