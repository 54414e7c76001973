"""Reads mutated rows as the process does, each value of those that are taken: ``SEED ROUNDS``.

Prints how many were taken untouched, taken and refused. It is a program of its own: where anything is read outside of the
message, it may end it.
"""

import random
import sys

import pyarrow as pa
from frames_examples import batches

from grouplearn.frontends.native.arrow_frames import batch_of, described, packed_batch, packed_schema
from grouplearn.frontends.native.frames import Malformed

ODD = (
    0,
    1,
    2,
    3,
    64,
    65,
    2048,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
#: What Arrow says of values that are wrong by themselves, wherever they lie.
HARMLESS = (
    "UTF8",
    "precision",
    "time",
    "Time",
    "not in",
    "zoneinfo",
    "out of range",
    "Null type",
    "null_count",
    "non-nullable",
    "Map array keys",
)


def mutated(content: bytes, numbers: random.Random) -> bytearray:
    """Change bytes or whole numbers, cut the end off, or copy one part over another."""
    body = bytearray(content)
    for _ in range(numbers.randint(1, 3)):
        at = numbers.randrange(len(body))
        match numbers.randrange(5):
            case 0:
                body[at] = numbers.randrange(256)
            case 1:
                body[at] ^= 1 << numbers.randrange(8)
            case 2:
                size, at = numbers.choice((4, 8)), at - at % 4
                body[at : at + size] = numbers.choice(ODD).to_bytes(8, sys.byteorder)[: min(size, len(body) - at)]
            case 3 if numbers.randrange(8) == 0 and at:
                del body[at:]
            case _:
                copied = body[numbers.randrange(len(body)) :][: numbers.randrange(40)]
                body[at : at + len(copied)] = copied[: len(body) - at]
    return body


def take(schema: bytes | bytearray, body: bytearray) -> bool:
    """Return whether the rows are taken; what is taken is read to the end."""
    try:
        batch = batch_of(body, described(schema))
    except (Malformed, pa.ArrowException, ValueError, TypeError, NotImplementedError):
        return False
    try:
        batch.validate(full=True)
        batch.to_pylist()
    except (UnicodeDecodeError, OverflowError):
        pass
    except ValueError as error:  # Arrow's own, too
        if not any(each in str(error) for each in HARMLESS):
            raise
    return True


def main(seed: str, rounds: str) -> None:
    numbers = random.Random(int(seed))
    given = [(packed_schema(each.schema), b"".join(packed_batch(each))) for each in batches()]
    untouched = sum(take(schema, bytearray(body)) for schema, body in given)
    taken = 0
    for _ in range(int(rounds)):
        schema, body = numbers.choice(given)
        if numbers.randrange(3):
            taken += take(schema, mutated(body, numbers))
        else:
            taken += take(mutated(schema, numbers), bytearray(body))
    print(untouched, taken, int(rounds) - taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
