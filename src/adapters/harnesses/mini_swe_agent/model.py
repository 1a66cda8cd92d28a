"""What the package's agent takes for its model: our Model port, called from its thread."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ....domain.errors import HarnessFailed
from ....domain.model import Message, ModelRequest, ModelResponse, Tool, ToolCall
from ....domain.ports import Model
from ..agent_thread import LoopCalls
from .config import AgentSettings
from .package import Package
from .steps import StepLog

CUT_NOTE = (
    "Your previous response reached the output token limit (finish_reason=length) and was cut off before it was "
    "complete, so nothing of it was executed. Respond more concisely."
)
_NOT_EXECUTED = {"output": "", "returncode": -1, "exception_info": "action was not executed"}


class PortModel:
    """The package's Model protocol over a Model port; one of each attempt."""

    def __init__(
        self, model: Model, settings: AgentSettings, package: Package, calls: LoopCalls, steps: StepLog
    ) -> None:
        self.config = SimpleNamespace(model_name=model.name)
        self._model, self._settings, self._package = model, settings, package
        self._calls, self._steps = calls, steps
        self._tools = () if settings.text_mode else (_tool(package.bash_tool),)
        self._conversation: list[Message] = []
        self.cut_replies: list[bool] = []
        """Of the unusable replies in a row, which were cut at the token limit."""

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        """One reply, parsed; an unusable one raises the package's FormatError.

        Raises:
            HarnessFailed: the user set a limit in USD, and what the call cost is not known.
        """
        prompts = None if self._conversation else (messages[0]["content"], messages[1]["content"])
        self._conversation += [_as_message(message) for message in messages[len(self._conversation) :]]
        request = ModelRequest(messages=tuple(self._conversation), tools=self._tools)
        response = self._calls(lambda: self._model.complete(request))
        self._steps.replied(response, prompts)
        cost = self._cost(response)
        try:
            actions = self._actions(response)
        except self._package.format_error as exc:
            self._refuse(exc, response, cost)
            raise
        self.cut_replies = []
        self._conversation.append(response.message)
        extra = {"actions": actions, "cost": cost, "finish_reason": response.finish_reason, "timestamp": time.time()}
        return _as_dict(response.message) | {"extra": extra | {"usage": response.usage.model_dump()}}

    def _refuse(self, error: Any, response: ModelResponse, cost: float) -> None:
        message = error.messages[0]
        is_cut = response.finish_reason == "length"
        if is_cut and "finish_reason" not in self._settings.format_error_template:
            message["content"] = CUT_NOTE
        message["extra"] |= {"cost": cost, "response": response.model_dump()}
        self.cut_replies.append(is_cut)
        self._steps.close(message["content"])

    def _actions(self, response: ModelResponse) -> list[dict[str, Any]]:
        template, cut = self._settings.format_error_template, response.finish_reason == "length"
        shared = {"format_error_template": template, "template_kwargs": {"finish_reason": response.finish_reason}}
        if not self._settings.text_mode:
            calls = [_foreign_call(call) for call in response.message.tool_calls]
            actions = self._package.parse_tool_calls(calls, **shared)
            if all(isinstance(action["command"], str) for action in actions):
                return actions
            unusable = ToolCall(id="", name="bash", arguments="{}")
            return self._package.parse_tool_calls([_foreign_call(unusable)], **shared)
        content = "" if cut else response.message.content  # a command in a text that goes on is not known to be whole
        return self._package.parse_text(content, action_regex=self._settings.action_regex, **shared)

    def _cost(self, response: ModelResponse) -> float:
        cost, price = response.usage.cost_usd, self._model.price
        if cost is None and price is not None:
            cost = price.cost_usd(response.usage)
        limit = self._settings.explicit_cost_limit
        if cost is None and limit:
            raise HarnessFailed(
                f"cost_limit {limit:g} cannot be watched: the endpoint does not say how many tokens a call used",
                hint="make the endpoint tell its usage, or use step_limit",
            )
        return cost or 0.0

    def format_message(self, **kwargs: Any) -> dict[str, Any]:
        """As it is."""
        return kwargs

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """What the model is shown of its actions, which ends the step."""
        template = self._package.template(self._settings.observation_template)
        actions = message["extra"]["actions"]
        outputs = outputs + [_NOT_EXECUTED] * (len(actions) - len(outputs))
        observations = [
            _observation(action, output, template.render(**(template_vars or {}), output=output))
            for action, output in zip(actions, outputs, strict=True)
        ]
        self._steps.close("\n".join(observation["content"] for observation in observations))
        return observations

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the package's templates."""
        return {"model_name": self._model.name}

    def serialize(self) -> dict[str, Any]:
        """For the package's trajectory file."""
        settings = self._settings
        config = {
            "model_name": self._model.name,
            "observation_template": settings.observation_template,
            "format_error_template": settings.format_error_template,
            "action_mode": "text" if settings.text_mode else "tool_call",
        }
        return {"info": {"config": {"model": config, "model_type": f"{__name__}.PortModel"}}}


def _tool(foreign: Mapping[str, Any]) -> Tool:
    function = foreign["function"]
    return Tool(name=function["name"], description=function["description"], parameters=function["parameters"])


def _observation(action: Mapping[str, Any], output: Mapping[str, Any], content: str) -> dict[str, Any]:
    extra = {"raw_output": output["output"], "timestamp": time.time()}
    extra |= {key: output[key] for key in ("returncode", "exception_info")}
    if "tool_call_id" in action:
        return {"role": "tool", "tool_call_id": action["tool_call_id"], "content": content, "extra": extra}
    return {"role": "user", "content": content, "extra": extra}


def _foreign_call(call: ToolCall) -> SimpleNamespace:
    return SimpleNamespace(id=call.id, function=SimpleNamespace(name=call.name, arguments=call.arguments))


def _as_message(message: Mapping[str, Any]) -> Message:
    return Message(role=message["role"], content=message["content"], tool_call_id=message.get("tool_call_id"))


def _as_dict(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning_content is not None:
        result["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return result
