"""Chunks run together, and a job that must travel alone runs by itself."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.waiting import eventually
from workers.company import Company


class Journey:
    """A chunk on its way in a thread: aboard once it was let in, until it is told to arrive."""

    def __init__(self, company: Company, pool: ThreadPoolExecutor, *, alone: bool) -> None:
        self.aboard = Event()
        self._arrive = Event()
        self._done = pool.submit(self._travel, company, alone)

    def _travel(self, company: Company, alone: bool) -> None:
        with company.travel(alone=alone):
            self.aboard.set()
            assert self._arrive.wait(60)

    def arrive(self) -> None:
        self._arrive.set()
        self._done.result(timeout=60)


def test_one_who_is_alone_waits_for_all_others_and_they_for_it() -> None:
    company = Company()
    with ThreadPoolExecutor(4) as pool:
        first, second = (Journey(company, pool, alone=False) for _ in range(2))
        eventually(lambda: first.aboard.is_set() and second.aboard.is_set())
        lonely = Journey(company, pool, alone=True)
        eventually(lambda: company.waiting == 1)
        later = Journey(company, pool, alone=False)
        first.arrive()
        assert not lonely.aboard.is_set()
        second.arrive()
        assert lonely.aboard.wait(60)
        assert not later.aboard.is_set()
        lonely.arrive()
        assert later.aboard.wait(60)
        later.arrive()


def test_two_who_are_alone_go_one_after_the_other() -> None:
    company = Company()
    with ThreadPoolExecutor(2) as pool:
        first = Journey(company, pool, alone=True)
        assert first.aboard.wait(60)
        second = Journey(company, pool, alone=True)
        eventually(lambda: company.waiting == 1)
        assert not second.aboard.is_set()
        first.arrive()
        assert second.aboard.wait(60)
        second.arrive()
