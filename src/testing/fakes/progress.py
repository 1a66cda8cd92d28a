"""A progress display that only remembers."""

from collections import deque
from typing import TypeVar

from ...domain.events import Event
from ...domain.value import Parameters as AdapterParameters

E = TypeVar("E", bound=Event)


class RecordingProgress:
    """Keeps the last `keep` events in `events`."""

    class Parameters(AdapterParameters):
        """How much to remember."""

        keep: int = 100_000

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or self.Parameters()
        self.events: deque[Event] = deque(maxlen=self.parameters.keep)

    def on(self, event: Event) -> None:
        """Remember `event`."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The remembered events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]
