"""Message ids in Python: the same ids as onceward.ID gives.

As a program it reads one JSON list of parts a line and prints each id, as the test of the golden ids
has it do.
"""

import json
import re
import sys


def message_id(*parts):
    """Joins parts, which are int or str, to an id; as bytes, for an id is bytes."""
    return b":".join(_part(p) for p in parts)


def _part(part):
    if isinstance(part, bool) or not isinstance(part, (int, str)):
        raise TypeError(f"a part is an int or a str, not {type(part).__name__}")
    if isinstance(part, int):
        return str(part).encode()
    text = part.encode()
    integer = re.fullmatch(rb"-?[0-9]+", text)
    return b"".join(
        b"%%%02X" % c if c in b":#%\x7f" or c < 0x20 or (integer and i == 0) else bytes([c])
        for i, c in enumerate(text)
    )


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(message_id(*json.loads(line)).decode()))
