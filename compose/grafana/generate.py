"""Makes the dashboards beside this file: `make reference`, or python compose/grafana/generate.py [FOLDER].

What a metric is, a panel says with the words of observability/families.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from health import health
from overview import overview
from scope import scope


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards"
    for document in (overview(), scope(), health()):
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (folder / f"{document['uid']}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
