"""The rules of a device's file tree: Crystal's own files, what a person excluded, and what they allowed."""

from pathlib import Path

from crystal_mirror.file_paths import folded
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import Home
from crystal_node.base.settings import read_config
from crystal_node.device.device import Device


def rules_of(device: Device) -> TreeRules:
    """The rules of ``config.json`` as it is now: a command may change them while a watcher runs."""
    home = device.settings.home
    databases, secrets = own_places(home)
    config = read_config(home.config_file)
    return TreeRules(config.files_rules, databases, secrets, config.files_allowed)


def own_places(home: Home) -> tuple[frozenset[str], frozenset[str]]:
    """The folders of the home that hold databases, and its files that hold secrets, by every path that leads to them."""
    databases = {"memory"} | _inside(home.root, home.database.parent)
    secrets = _inside(home.root, home.passphrase_file) if home.passphrase_file is not None else set[str]()
    return frozenset(databases), frozenset(secrets)


def _inside(root: Path, path: Path) -> set[str]:
    """The path within the home as it is written, and as it is with links resolved; "" is the home itself."""
    found: set[str] = set()
    for base, each in ((root, path), (root.resolve(), path.resolve())):
        if each.is_relative_to(base):
            found.add("/".join(folded(part) for part in each.relative_to(base).parts))
    return found
