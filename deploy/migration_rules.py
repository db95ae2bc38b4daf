"""What a migration may not do, as processes of the version before go on beside it (docs/upgrades.md). Pure.

It reads the statements that a migration has run.
"""

import re
from collections.abc import Iterable

NAME = r"(?P<table>[\w\".]+)"
TABLE_IS_MADE = re.compile(rf"CREATE TABLE (IF NOT EXISTS )?{NAME}", re.I)
OF_TABLE = [
    re.compile(rf"{start} {NAME}", re.I)
    for start in (
        r"ALTER TABLE( IF EXISTS)?( ONLY)?",
        r"CREATE (UNIQUE )?INDEX( CONCURRENTLY)?( IF NOT EXISTS)?( [\w\"]+)? ON( ONLY)?",
        r"UPDATE( ONLY)?",
        r"DELETE FROM( ONLY)?",
    )
]
# What a statement says, and why an older process or its users suffer from it. The first that fits tells.
FAULTS = [
    (
        r"^(DROP (TABLE|VIEW|TYPE|SEQUENCE)|TRUNCATE)\b",
        "older processes still use it: contract one release later",
    ),
    (r"^ALTER TABLE .*\bDROP (COLUMN|DEFAULT)\b", "older processes still use it: contract one release later"),
    (r"^ALTER .*\bRENAME\b", "older processes know the old name: add the new one, copy, contract later"),
    (r"^DROP INDEX\b", "older processes still look things up by it: contract one release later"),
    (r"^ALTER TABLE .*\bSET NOT NULL\b", "older processes write NULL there"),
    (r"^ALTER TABLE .*\bALTER (COLUMN )?\S+ (SET DATA )?TYPE\b", "it rewrites the table under a lock"),
    (
        r"^ALTER TABLE .*\bADD (COLUMN )?.*\b(GENERATED|(BIG)?SERIAL|random\(|clock_timestamp\(|nextval\()",
        "it rewrites the table under a lock",
    ),
    (
        r"^ALTER TABLE .*\bADD (COLUMN )?(?!.*\bDEFAULT\b).*\bNOT NULL\b",
        "older processes do not write it: add a default",
    ),
    (
        r"^ALTER TABLE .*\bADD (CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b(?!.*\bNOT VALID\b)",
        "it reads the whole table under a lock: NOT VALID, and VALIDATE in a migration of its own",
    ),
    (r"^CREATE UNIQUE INDEX\b", "older processes may write the same value twice"),
    (
        r"^CREATE INDEX (?!CONCURRENTLY)",
        "nobody can write until it is there: CONCURRENTLY, in an autocommit_block",
    ),
    (r"^(UPDATE|DELETE)\b", "its rows stay locked until the end: fill in blocks once all processes are new"),
    (r"^(LOCK|CLUSTER|VACUUM FULL|REINDEX (?!.*CONCURRENTLY))\b", "nobody can write meanwhile"),
]
PATTERNS = [(re.compile(pattern, re.I | re.S), why) for pattern, why in FAULTS]


def faults(statements: Iterable[str]) -> list[str]:
    """Those that may not run beside older processes, each with the reason.

    Tables that the migration itself makes are free: no older process knows them.
    """
    told: list[str] = []
    made: set[str] = set()
    locked: set[str] = set()
    for statement in (" ".join(statement.split()) for statement in statements):
        if found := TABLE_IS_MADE.match(statement):
            made.add(found["table"])
        elif (table := _table(statement)) not in made:
            told += [f"{statement[:200]}: {why}" for why in [_fault(statement)] if why]
            if table and statement.upper().startswith("ALTER TABLE"):
                locked.add(table)
    if len(locked) > 1:
        told.append(
            f"it locks {', '.join(sorted(locked))} at once, others in another order: a migration each"
        )
    return told


def _table(statement: str) -> str | None:
    found = next((found for pattern in OF_TABLE if (found := pattern.match(statement))), None)
    return found["table"] if found else None


def _fault(statement: str) -> str | None:
    return next((why for pattern, why in PATTERNS if pattern.search(statement)), None)
