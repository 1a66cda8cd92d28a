"""Adding up what a model's answers cost."""

from typing import ClassVar

from ..domain.model import NO_USAGE, ModelRequest, ModelResponse, Price, Usage
from ..domain.ports import Model
from ..domain.value import Parameters


class MeteredModel:
    """A model that adds up what its answers cost, so that the sum survives a harness that is cut."""

    Parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(self, model: Model) -> None:
        self._model = model
        self.usage: Usage = NO_USAGE

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Price | None:
        return self._model.price

    async def complete(self, request: ModelRequest) -> ModelResponse:
        response = await self._model.complete(request)
        self.usage = self.usage.plus(response.usage)
        return response

    async def close(self) -> None:
        """The model is the run's; it is closed there."""
