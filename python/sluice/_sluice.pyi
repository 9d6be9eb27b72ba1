from typing import TypedDict

__version__: str

class Param(TypedDict):
    name: str
    unit: str
    default: str
    range: tuple[str, str] | None
    doc: str
    source: str

class Algorithm(TypedDict):
    name: str
    form: str
    doc: str
    params: list[Param]

def algorithms() -> list[Algorithm]: ...

class Queue:
    def __init__(self, spec: str, seed: int = 1) -> None: ...
    def enqueue(self, time_ns: int, size_bytes: int, flow: int = 0, ecn: int = 0) -> int: ...
    def dequeue(self, time_ns: int) -> tuple[int, int, int] | None: ...
    def take_drops(self) -> list[tuple[int, int, str]]: ...
    @property
    def backlog(self) -> tuple[int, int]: ...
