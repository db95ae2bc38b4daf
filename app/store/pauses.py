"""Hosts that asked to be left alone for a while: no fetcher takes an image of theirs before."""

from sqlalchemy import text
from sqlalchemy.orm import Session


def pause_host(session: Session, host: str, seconds: float) -> None:
    """Let nobody ask this host for so long; a longer pause that it asked for before stays."""
    session.execute(text("DELETE FROM host_pauses WHERE until <= now()"))
    session.execute(
        text(
            """
            INSERT INTO host_pauses AS p (host, until)
            VALUES (:host, now() + :seconds * interval '1 second')
            ON CONFLICT (host) DO UPDATE SET until = greatest(p.until, excluded.until)
            """
        ),
        {"host": host, "seconds": seconds},
    )
