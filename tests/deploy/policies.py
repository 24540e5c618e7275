"""The policies of `deploy/aws`, with their placeholders filled in as deploy/README.md says."""

import json
from pathlib import Path
from typing import Any

AWS = Path(__file__).resolve().parents[2] / "deploy" / "aws"


def policy(
    name: str, *, bucket: str, prefix: str = "relay", relay: str = "arn:aws:iam::123456789012:role/relay"
) -> Any:
    text = (AWS / name).read_text(encoding="utf-8")
    return json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix).replace("RELAY_ARN", relay))


def without_conditions(document: Any) -> Any:
    """moto knows no conditions in policies: a statement that has some would count as refused."""
    return document | {
        "Statement": [
            {name: value for name, value in statement.items() if name != "Condition"}
            for statement in document["Statement"]
        ]
    }


def statement(document: Any, sid: str) -> Any:
    (found,) = [one for one in document["Statement"] if one["Sid"] == sid]
    return found
