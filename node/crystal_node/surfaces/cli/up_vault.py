"""How `crystal up` founds a vault or joins one, with whoever sits here."""

import asyncio
from typing import TYPE_CHECKING

from crystal_node.surfaces.cli.options import is_terminal, read_secret

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

_READ = "-"


class Enrolment:
    """What is needed for it, taken from flags or asked for when it is needed. ``founded``: a vault was made."""

    def __init__(self, role: str, token: str | None, code: str | None, *, yes: bool, as_json: bool) -> None:
        self._role, self._token, self._code = role, token, code
        self._yes, self._as_json = yes, as_json
        self.founded = False

    def enrol(self, settings: "Settings") -> str:
        """Founds or joins. Returns how it is now. Raises what ``enrol`` and ``pairing`` raise."""
        return self._found(settings) if self._role == "core" else self._join(settings)

    def _found(self, settings: "Settings") -> str:
        from crystal_node.base.settings import enrolment_token
        from crystal_node.device.enrol import found_vault

        token = enrolment_token() if self._token is None else self._token
        if self._token == _READ or (not token and is_terminal()):
            token = read_secret("The relay's enrolment token: ", what="enrolment token")
        enrolled = asyncio.run(found_vault(settings, token))
        self.founded = True
        return f"vault {enrolled.vault.hex()[:8]}, this machine ({enrolled.settings.name.value}) is its Core"

    def _join(self, settings: "Settings") -> str:
        from crystal_node.device.enrol import join_vault
        from crystal_node.surfaces.cli.pair import is_invite, someone_must_confirm

        code = self._code or _READ
        if code == _READ:
            code = read_secret("The code that `crystal pair` shows (MC2:… or mc1:…): ", what="code")
        if is_invite(code):
            from crystal_crypto.invite_code import decode_invite
            from crystal_node.surfaces.cli.pair_invite import enter, first_sync

            invite = decode_invite(code)
            someone_must_confirm(yes=self._yes)
            enrolled = enter(settings, invite, as_json=self._as_json, yes=self._yes, new_keys=False).enrolled
            first_sync(enrolled.settings)
        else:
            from crystal_crypto.pairing import decode

            offline = decode(code)
            enrolled = asyncio.run(join_vault(settings, offline.root, offline.vault))
        return (
            f"vault {enrolled.vault.hex()[:8]}, this machine ({enrolled.settings.name.value}) is a Node of it"
        )
