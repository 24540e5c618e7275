"""What this relay was installed from: `crystal-relay`, the relay alone, or `memory-crystal`, which holds a device as well."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the distribution that these modules came with."""
    try:
        return version("memory-crystal")
    except PackageNotFoundError:
        return version("crystal-relay")
