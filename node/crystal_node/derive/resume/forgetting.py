"""What resuming and handing over leave on this machine's disk, and when it goes.

    state/handoff/        what other tools were told of sessions, which they may read again for a week
    state/resume/torn/    half lines that killed tools left behind a transcript, for a month
    state/resume.db       the list of sessions, with titles and last words

All of it quotes what was said, cut, so that no hash tells which of it holds a forgotten text: once something was forgotten, all
of it goes.
"""

import shutil
import time
from pathlib import Path

from crystal_node.base.home import Home
from crystal_node.derive.resume.index import IndexFile

HANDED_OVER_SECONDS = 7 * 86_400
TORN_SECONDS = 30 * 86_400


def handed_over(home: Home) -> Path:
    """The folder of what other tools were told."""
    return home.state / "handoff"


def torn(home: Home) -> Path:
    """The folder of half lines."""
    return home.state / "resume" / "torn"


def follow_forgets(home: Home, mark: str) -> bool:
    """Removes all of it if something was forgotten since the last call; whether that was so. ``mark``: see ``follows``.

    Called before any of it is written, so that a forget that comes later is noticed. Killed in between, the next call removes
    the rest. Raises OSError, LocalStorage, apsw's errors.
    """
    index = IndexFile(home.root)
    if index.follows(mark):
        return False
    # The mark goes last: until then the next call begins again.
    _remove(handed_over(home), float("inf"))
    _remove(torn(home), float("inf"))
    index.follow(mark)
    return True


def remove_old(home: Home) -> int:
    """Removes what has been kept long enough. Returns how many files and folders. Raises OSError."""
    now = time.time()
    return _remove(handed_over(home), now - HANDED_OVER_SECONDS) + _remove(torn(home), now - TORN_SECONDS)


def _remove(folder: Path, before: float) -> int:
    try:
        found = list(folder.iterdir())
    except FileNotFoundError:
        return 0
    old = [path for path in found if path.lstat().st_mtime < before]
    for path in old:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(old)
