"""What the device log makes of a vault, a device and a root, whatever is said: to be compared with the drawings."""

from crystal_mirror.devicelog.log import NOBODY
from crystal_mirror.devicelog.records import GrantRecord, LeadRecord, NameRecord
from tests.mirror.logs import Logbook
from tests.mirror.support import new_device, new_root
from tests.support.drawings import Edge, tried


class Subject(Logbook):
    """A led vault, and a device about which the log is told things by its root."""

    def __init__(self) -> None:
        super().__init__()
        self.core, self.subject = new_device("core"), new_device("subject")
        self.must(self.root_record(self.root))
        self.must(self.add(self.core))
        self.must(LeadRecord(1, self.core.id, bytes(16)))

    def lead(self, device: bytes) -> None:
        assert self.log.lead is not None
        self.says(LeadRecord(self.log.lead.epoch + 1, device, bytes(16)))

    def state(self) -> str:
        info = self.log.member(self.subject.id)
        if info is None:
            return "unknown"
        if info.revoked is not None:
            return "revoked"
        lead, last = self.log.lead, self.log.last_core
        assert lead is not None
        assert last is not None
        if last.device == info.device:
            return ("led last" if lead.is_freeze else "leads") + (" and may" if info.grant else "")
        return "may lead" if info.grant else "active"


class Reign(Subject):
    """The same vault before anybody leads it, as it stands to having a Core."""

    def __init__(self) -> None:
        Logbook.__init__(self)
        self.core, self.subject = new_device("core"), new_device("subject")
        self.must(self.root_record(self.root))
        self.must(self.add(self.core))

    def lead(self, device: bytes) -> None:
        epoch = self.log.lead.epoch if self.log.lead is not None else 0
        self.says(LeadRecord(epoch + 1, device, bytes(16)))

    def state(self) -> str:
        lead = self.log.lead
        return "none yet" if lead is None else "frozen" if lead.is_freeze else "led"


def reigns() -> set[Edge]:
    return tried(
        Reign,
        {
            "a device's lead": lambda r: r.lead(r.core.id),
            "a freeze": lambda r: r.lead(NOBODY),
            "revoke": lambda r: r.says(r.revoke(r.core.id)),
            "a generation": lambda r: r.says(r.generation()),
        },
        Reign.state,
    )


def devices() -> set[Edge]:
    return tried(
        Subject,
        {
            "add": lambda s: s.says(s.add(s.subject)),
            "add with a grant": lambda s: s.says(s.add(s.subject, grant=True)),
            "grant": lambda s: s.says(GrantRecord(s.subject.id)),
            "name": lambda s: s.says(NameRecord(s.subject.id)),
            "lead": lambda s: s.lead(s.subject.id),
            "another's lead": lambda s: s.lead(s.core.id),
            "a freeze": lambda s: s.lead(NOBODY),
            "revoke": lambda s: s.says(s.revoke(s.subject.id)),
            "a generation": lambda s: s.says(s.generation()),
            "another's revoke": lambda s: s.says(s.revoke(s.core.id)),
        },
        Subject.state,
    )


class Roots(Logbook):
    """A log without an entry, and the root that will found it."""

    def another(self) -> None:
        if self.log.root is not None:
            self.rotate(f"root {len(self.log.events)}")

    def again(self) -> None:
        self.says(self.root_record(new_root()), by=self.root)

    def state(self) -> str:
        if self.log.root is None:
            return "none"
        return "in force" if self.log.root.admin == new_root().admin.public.to_bytes() else "replaced"


def roots() -> set[Edge]:
    return tried(
        Roots,
        {
            "its root entry": Roots.again,
            "another's root entry": Roots.another,
            "an add": lambda r: r.log.root and r.says(r.add(new_device("x"))),
        },
        Roots.state,
    )
