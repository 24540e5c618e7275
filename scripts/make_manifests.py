"""Write deploy/kubernetes/: the chart of deploy/helm, rendered for those who use no Helm.

`python -m scripts.make_manifests` needs Helm, of .venv-cluster or on the PATH. `tests/deploy/test_kubernetes.py` compares.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.install_test_servers import HELM

PROJECT = Path(__file__).resolve().parents[1]
CHART = PROJECT / "deploy" / "helm" / "crystal-relay"
MANIFESTS = PROJECT / "deploy" / "kubernetes"
_BUCKET = ("--set", "store.bucket.url=s3://BUCKET/PREFIX")
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "bucket.yaml": ("Two relay processes over a bucket: set CRYSTAL_RELAY_STORE and the image.", _BUCKET),
    "directory.yaml": ("One relay process over a volume: set the image.", ("--set", "store.kind=directory")),
    "autoscaling.yaml": (
        "Processes over a bucket by the number of waiting devices: take `replicas` out of bucket.yaml.",
        (
            *_BUCKET,
            *("--set", "autoscaling.enabled=true,metrics.podMonitor=true"),
            *("--show-only", "templates/autoscaling.yaml", "--show-only", "templates/podmonitor.yaml"),
        ),
    ),
    "ingress.yaml": (
        "The public paths from outside: set the name, its certificate, and what your controller needs.",
        (*_BUCKET, "--set", "ingress.enabled=true", "--show-only", "templates/ingress.yaml"),
    ),
}
"""Name, what the file is for, and what Helm is asked for."""
_HEAD = """# {about} deploy/README.md, Kubernetes, says how.
# Written by `python -m scripts.make_manifests` from deploy/helm; not to be changed there by hand, but where you use it.
"""


def helm() -> str | None:
    """The program, if it is here."""
    return str(HELM) if HELM.exists() else shutil.which("helm")


def rendered(program: str, *options: str) -> str:
    """The chart with these options. Raises CalledProcessError: the chart refuses them."""
    command = [program, "template", "crystal-relay", str(CHART), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


def manifest(program: str, name: str) -> str:
    """The text of one of FILES."""
    about, options = FILES[name]
    documents = re.sub(r"^# Source: .*\n", "", rendered(program, *options), flags=re.MULTILINE)
    return _HEAD.format(about=about) + re.sub(r"\n{2,}", "\n", documents)


def main() -> int:
    program = helm()
    if program is None:
        print("make_manifests: there is no helm: python -m scripts.install_test_servers", file=sys.stderr)
        return 3
    for name in FILES:
        (MANIFESTS / name).write_text(manifest(program, name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
