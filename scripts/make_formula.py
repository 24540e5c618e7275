"""Write Homebrew's formula for a built sdist, for a tap of one's own.

`python3 -m scripts.make_formula SDIST --url URL --homepage URL > memory-crystal.rb`: `--url` is where that file is published.
The packages come as wheels, by their hashes, out of the sdist's `requirements/device.txt`; Homebrew's own collection would
build each from source, which onnxruntime does not offer. Needs Python alone.
"""

import argparse
import hashlib
import re
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

PYTHON = "3.13"
_FORMULA = """class MemoryCrystal < Formula
  include Language::Python::Virtualenv

  desc "{description}"
  homepage "{homepage}"
  url "{url}"
  version "{version}"
  sha256 "{sha256}"
  license "{license}"

  depends_on "python@{python}"

  conflicts_with "crystal", because: "both install a `crystal` executable"

  def install
    virtualenv_create(libexec, "python{python}")
    pip = ["python{python}", "-m", "pip", "--python={interpreter}", "install", "--no-compile"]
    system(*pip, "--require-hashes", "--requirement", buildpath/"requirements/build.txt",
           "--requirement", buildpath/"requirements/device.txt")
    system(*pip, "--no-deps", "--no-build-isolation", buildpath)
    bin.install_symlink {commands}
    man1.install Dir[libexec/"share/man/man1/crystal*.1"]
    generate_completions_from_executable(bin/"crystal", "completion", "show", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/crystal --version")
    ENV["CRYSTAL_HOME"] = testpath/"home"
    assert_match "belongs to no vault", shell_output("#{{bin}}/crystal status 2>&1", 3)
  end
end
"""


def formula(sdist: Path, url: str, homepage: str) -> str:
    """The formula's text. Raises ValueError for an address that Ruby would not read as a plain string."""
    for address in (url, homepage):
        if not re.fullmatch(r"https://[\w.~:/%@+-]+", address):
            raise ValueError(f"{address!r} is no address that a formula can hold")
    project = _project(sdist)
    commands = ", ".join(f'libexec/"bin/{name}"' for name in project["scripts"])
    return _FORMULA.format(
        description=str(project["description"]).rstrip("."),
        homepage=homepage,
        url=url,
        version=project["version"],
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        license=project["license"],
        python=PYTHON,
        interpreter="#{libexec}/bin/python",
        commands=commands,
    )


def _project(sdist: Path) -> dict[str, Any]:
    with tarfile.open(sdist) as archive:
        member = next(name for name in archive.getnames() if re.fullmatch(r"[^/]+/pyproject\.toml", name))
        file = archive.extractfile(member)
        assert file is not None, "a regular file"
        project: dict[str, Any] = tomllib.loads(file.read().decode())["project"]
        return project


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make_formula", description="Write Homebrew's formula for a built sdist."
    )
    parser.add_argument("sdist", type=Path)
    parser.add_argument("--url", required=True, help="where that file is published")
    parser.add_argument("--homepage", required=True)
    given = parser.parse_args()
    sys.stdout.write(formula(given.sdist, given.url, given.homepage))
    return 0


if __name__ == "__main__":
    sys.exit(main())
