"""`scripts/schemathesis [CASES]`: a long look at the API that VQUEUE_URL and VQUEUE_API_KEY name."""

import os
import sys

from openai import OpenAI

from tests.contract.explore import explore
from tests.contract.objects import make_objects

CASES = 400  # of each operation


def main(arguments: list[str]) -> int:
    url, key = os.environ["VQUEUE_URL"].rstrip("/"), os.environ["VQUEUE_API_KEY"]
    known = make_objects(OpenAI(base_url=url, api_key=key))
    cases = int(arguments[0]) if arguments else CASES
    found = explore(url.removesuffix("/v1"), key, known, examples=cases)
    for problem in found.problems:
        print(problem, end="\n\n")
    print("answers: " + ", ".join(f"{status}: {count}" for status, count in sorted(found.statuses.items())))
    print(found.line())
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
