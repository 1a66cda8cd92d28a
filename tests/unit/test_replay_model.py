"""Recorded replies: found, matched to their conversations, served in order."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.models.recording import Recording, Recordings, find_recordings
from agentcompass.adapters.models.replay import ReplayModel, ReplayParameters
from agentcompass.domain.attempt import AssistantContent, Step, StepMetric
from agentcompass.domain.errors import ConfigError, ModelRefused
from agentcompass.domain.model import Message, ModelEndpoint, ModelRequest, Price, ToolCall
from hypothesis import given
from hypothesis import strategies as st

TIME = "2026-01-01T00:00:00+00:00"


def written(path: Path, lines: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def trajectory(path: Path, prompt: str, replies: Sequence[str]) -> Path:
    """A trajectory as the result store writes it."""
    steps = [
        Step(
            step_id=number,
            system_prompt="be brief" if number == 1 else None,
            user_content=prompt if number == 1 else None,
            assistant_content=AssistantContent(content=reply, reasoning_content="hm"),
            observation="seen",
            metric=StepMetric(prompt_tokens_len=100 * number, completion_tokens_len=7, llm_infer_ms=1.5),
            timestamp=TIME,
        )
        for number, reply in enumerate(replies, 1)
    ]
    return written(path, [step.model_dump(mode="json") for step in steps])


def replay(path: Path | str, **parameters: Any) -> ReplayModel:
    return ReplayModel(ReplayParameters(path=str(path), **parameters), ModelEndpoint(name="recorded"))


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def request(*messages: Message, system: str = "be brief") -> ModelRequest:
    return ModelRequest(messages=(Message(role="system", content=system), *messages))


async def talk(model: ReplayModel, opening: str, turns: int, *, observation: str = "seen") -> list[str]:
    """What the model says in a conversation of so many turns."""
    messages, heard = [user(opening)], []
    for _ in range(turns):
        message = (await model.complete(request(*messages))).message
        heard.append(message.content)
        messages += [message, user(observation)]
    return heard


# One file


async def test_a_file_serves_every_conversation_from_its_start(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": "a"}, {"content": "b"}]))

    assert await talk(model, "one task", 2) == ["a", "b"]
    assert await talk(model, "another", 2) == ["a", "b"]


async def test_the_same_conversation_again_is_the_same_again(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": "a"}, {"content": "b"}]))

    assert await talk(model, "task", 2) == await talk(model, "task", 2) == ["a", "b"]


async def test_a_line_has_all_parts_of_a_reply(tmp_path: Path) -> None:
    line = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "thoughts",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}},
            {"id": "b", "name": "bash", "arguments": {"command": "pwd"}},
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
        "finish_reason": "length",
    }
    response = await replay(written(tmp_path / "r.jsonl", [line])).complete(request(user("x")))

    assert response.message == Message(
        role="assistant",
        reasoning_content="thoughts",
        tool_calls=(
            ToolCall(id="a", name="bash", arguments='{"command": "ls"}'),
            ToolCall(id="b", name="bash", arguments='{"command": "pwd"}'),
        ),
    )
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 3)
    assert response.finish_reason == "length"


async def test_ids_that_were_not_recorded_are_made_and_differ(tmp_path: Path) -> None:
    line = {"tool_calls": [{"name": "bash", "arguments": "{}"}] * 2}
    model = replay(written(tmp_path / "r.jsonl", [line, line]))
    first = (await model.complete(request(user("x")))).message
    results = [Message(role="tool", tool_call_id=call.id, content="ok") for call in first.tool_calls]
    second = (await model.complete(request(user("x"), first, *results))).message
    ids = [call.id for message in (first, second) for call in message.tool_calls]

    assert len(set(ids)) == 4


async def test_a_json_document_serves_as_well(tmp_path: Path) -> None:
    bare, labelled = tmp_path / "bare.json", tmp_path / "labelled.json"
    bare.write_text(json.dumps([{"content": "a"}]))
    labelled.write_text(json.dumps({"match": "no matter here", "replies": [{"content": "b"}]}))

    assert await talk(replay(bare), "x", 1) == ["a"]
    assert await talk(replay(labelled), "x", 1) == ["b"]


async def test_the_models_name_is_the_path_where_none_is_given(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [{"content": "a"}])
    model = ReplayModel(ReplayParameters(), ModelEndpoint(name=str(path)))

    assert await talk(model, "x", 1) == ["a"]
    assert model.name == str(path)


async def test_a_replay_costs_nothing(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": "a"}]))
    response = await model.complete(request(user("x")))

    assert model.price == Price(input=0, output=0)
    assert response.usage.cost_usd == 0
    assert response.usage.input_tokens is None


# Order


async def test_running_out_is_loud(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "short.jsonl", [{"content": "a"}]))
    with pytest.raises(ModelRefused) as caught:
        await talk(model, "x", 2, observation="what now?")

    assert "'short.jsonl' has 1 replies and all are used" in caught.value.message
    assert "number 2" in caught.value.message
    assert "what now?" in caught.value.message


async def test_running_out_stays_loud(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": "a"}]))
    over = (user("x"), said("a"), user("y"))
    for messages in (over, over, (*over, user("z")), (*over, said("b"), user("z"))):
        with pytest.raises(ModelRefused):
            await model.complete(request(*messages))


async def test_a_reply_that_the_harness_did_not_keep_counts(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": word} for word in ("bad", "worse", "good", "done")]))
    messages = [user("task")]
    heard = []
    for kept in (False, False, True, True):
        message = (await model.complete(request(*messages))).message
        heard.append(message.content)
        messages += [message, user("seen")] if kept else [user("that was no command")]

    assert heard == ["bad", "worse", "good", "done"]


async def test_a_conversation_may_be_taken_up_in_the_middle(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": word} for word in "abc"]))
    response = await model.complete(request(user("x"), said("a"), user("seen"), said("b"), user("seen")))

    assert response.message.content == "c"


async def test_a_conversation_with_other_words_is_refused(tmp_path: Path) -> None:
    model = replay(written(tmp_path / "r.jsonl", [{"content": word} for word in "abc"]))
    await model.complete(request(user("x")))
    with pytest.raises(ModelRefused, match="not the recorded") as caught:
        await model.complete(request(user("x"), said("something else"), user("seen")))

    assert "'r.jsonl'" in caught.value.message


async def test_calls_are_compared_without_their_ids(tmp_path: Path) -> None:
    line = {"tool_calls": [{"id": "recorded", "name": "bash", "arguments": "{}"}]}
    model = replay(written(tmp_path / "r.jsonl", [line, {"content": "done"}]))
    renamed = Message(role="assistant", tool_calls=(ToolCall(id="other", name="bash", arguments="{}"),))
    response = await model.complete(request(user("x"), renamed, Message(role="tool", tool_call_id="other")))

    assert response.message.content == "done"


async def test_conversations_side_by_side_do_not_mix(tmp_path: Path) -> None:
    for task in range(10):
        lines = [{"match": f"<task {task}>"}, *({"content": f"{task}.{turn}"} for turn in range(5))]
        written(tmp_path / f"t{task}.jsonl", lines)
    model = replay(tmp_path, delay_s=0.001)
    heard = await asyncio.gather(*(talk(model, f"please do <task {task}>", 5) for task in range(10)))

    assert heard == [[f"{task}.{turn}" for turn in range(5)] for task in range(10)]


@given(st.lists(st.tuples(st.text(), st.booleans()), min_size=1, max_size=8))
def test_whatever_is_kept_the_replies_come_in_order(tmp_path_factory: pytest.TempPathFactory, course: Any) -> None:
    path = written(tmp_path_factory.mktemp("r") / "r.jsonl", [{"content": text} for text, _ in course])

    async def run() -> list[str]:
        model, messages, heard = replay(path), [user("task")], []
        for turn, (_, kept) in enumerate(course):
            message = (await model.complete(request(*messages))).message
            heard.append(message.content)
            messages += [message] if kept else []
            messages.append(user(f"turn {turn}"))
        return heard

    assert asyncio.run(run()) == [text for text, _ in course]


# Whose recording


async def test_the_longest_match_wins(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [{"match": "sort"}, {"content": "short"}])
    written(tmp_path / "b.jsonl", [{"match": "sort the files"}, {"content": "long"}])
    model = replay(tmp_path)

    assert await talk(model, "please sort the files", 1) == ["long"]
    assert await talk(model, "please sort them", 1) == ["short"]


async def test_a_conversation_that_nobody_recorded_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [{"match": "one"}, {"content": "x"}])
    written(tmp_path / "b.jsonl", [{"match": "two"}, {"content": "x"}])
    with pytest.raises(ModelRefused) as caught:
        await talk(replay(tmp_path), "three", 1)

    assert "none of the 2 recordings" in caught.value.message
    assert "'three'" in caught.value.message


async def test_only_the_first_user_message_is_matched(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [{"match": "alpha"}, {"content": "x"}])
    written(tmp_path / "b.jsonl", [{"match": "beta"}, {"content": "y"}, {"content": "z"}])

    assert await talk(replay(tmp_path), "beta", 2, observation="alpha alpha alpha") == ["y", "z"]


async def test_a_runs_folder_replays_its_trajectories(tmp_path: Path) -> None:
    trajectory(tmp_path / "trajectories" / "one.1.jsonl", "do one", ["a", "b"])
    trajectory(tmp_path / "trajectories" / "two.1.jsonl", "do two", ["c"])
    written(tmp_path / "details" / "one.json", [{}])
    model = replay(tmp_path)
    first = await model.complete(request(user("do two")))

    assert await talk(model, "do one", 2) == ["a", "b"]
    assert (first.message.content, first.message.reasoning_content) == ("c", "hm")
    assert (first.usage.input_tokens, first.usage.output_tokens) == (100, 7)


async def test_tries_that_were_followed_by_another_are_not_replayed(tmp_path: Path) -> None:
    trajectory(tmp_path / "trajectories" / "one.1.try-1.jsonl", "do one", ["dead end"])
    trajectory(tmp_path / "trajectories" / "one.1.jsonl", "do one", ["a"])

    assert [recording.name for recording in find_recordings(str(tmp_path))] == ["one.1.jsonl"]


async def test_the_attempts_of_a_task_are_replayed_in_turn(tmp_path: Path) -> None:
    for attempt in (1, 2, 10):
        replies = [f"{attempt}", f"{attempt} ends"]
        trajectory(tmp_path / "trajectories" / f"one.{attempt}.jsonl", "do one", replies)
    model = replay(tmp_path)
    heard = [await talk(model, "do one", 2) for _ in range(3)]

    assert heard == [["1", "1 ends"], ["2", "2 ends"], ["10", "10 ends"]]


async def test_attempts_that_begin_alike_are_each_replayed_whole(tmp_path: Path) -> None:
    for attempt in (1, 2):
        trajectory(tmp_path / "trajectories" / f"one.{attempt}.jsonl", "do one", ["same", f"{attempt}", "end"])
    model = replay(tmp_path, delay_s=0.001)
    heard = await asyncio.gather(talk(model, "do one", 3), talk(model, "do one", 3))

    assert sorted(heard) == [["same", "1", "end"], ["same", "2", "end"]]


async def test_a_prompt_that_names_another_machine_is_still_its_tasks(tmp_path: Path) -> None:
    prompt = "Solve this task:\n{task}\n<system>Linux {kernel}</system>\nGood luck\n"
    for task in ("sort", "search", "sort\nquickly"):
        recorded = prompt.format(task=task, kernel="5.4")
        trajectory(tmp_path / f"{task.replace(chr(10), '-')}.1.jsonl", recorded, [f"did {task}"])
    model = replay(tmp_path)
    heard = [
        await talk(model, prompt.format(task=task, kernel="6.1"), 1) for task in ("search", "sort\nquickly", "sort")
    ]

    assert heard == [["did search"], ["did sort\nquickly"], ["did sort"]]


async def test_another_task_in_the_same_frame_is_refused(tmp_path: Path) -> None:
    prompt = "Solve this task:\n{task}\nGood luck\n"
    for task in ("sort", "search"):
        trajectory(tmp_path / f"{task}.1.jsonl", prompt.format(task=task), ["x"])
    with pytest.raises(ModelRefused):
        await talk(replay(tmp_path), prompt.format(task="delete everything"), 1)


class CountedText(str):
    """Counts how often it is taken apart."""

    taken_apart = 0

    def splitlines(self, keepends: bool = False) -> list[str]:
        type(self).taken_apart += 1
        return super().splitlines(keepends)


def test_prompts_are_compared_with_each_other_once_however_many_conversations_begin(tmp_path: Path) -> None:
    prompts = [CountedText(f"You are on a machine.\nDo task {number}.") for number in range(20)]
    recordings = Recordings([Recording(f"{n}.jsonl", tmp_path, prompt=prompt) for n, prompt in enumerate(prompts)])
    served = [recordings.serving(f"You are on another machine.\nDo task {number}.") for number in (3, 3, 11)]

    assert [[recording.name for recording in each] for each in served] == [["3.jsonl"], ["3.jsonl"], ["11.jsonl"]]
    assert CountedText.taken_apart == len(prompts)


async def test_a_lone_trajectory_in_a_folder_serves_its_own_prompt_only(tmp_path: Path) -> None:
    trajectory(tmp_path / "one.1.jsonl", "do one", ["a"])
    model = replay(tmp_path)

    assert await talk(model, "do one", 1) == ["a"]
    with pytest.raises(ModelRefused):
        await talk(model, "do two", 1)


async def test_recordings_may_be_a_packages_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_recordings_package"
    written(package / "recorded" / "one.jsonl", [{"match": "one"}, {"content": "a"}])
    written(package / "recorded" / "two.jsonl", [{"match": "two"}, {"content": "b"}])
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert await talk(replay("package:some_recordings_package/recorded"), "two", 1) == ["b"]


# What is refused before anything starts


@pytest.mark.parametrize(
    "path", ["no/such/folder", "package:no_such_package/recorded", "package:", "package:json/none", "~nosuch/recorded"]
)
def test_a_place_without_recordings_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        replay(path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recording"):
        replay(tmp_path)


def test_a_folder_whose_files_do_not_say_whose_they_are_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [{"content": "x"}])
    with pytest.raises(ConfigError, match="a.jsonl") as caught:
        replay(tmp_path)

    assert "match" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"content": "a"}\n{"content": \n{"content": "b"}\n', "line 2"),
        ('{"content": "a"}\n[1]\n', "line 2"),
        ('{"content": "a"}\n{"contents": "b"}\n', "reply 2: contents"),
        (f'{{"content": {"[" * 9999}', "line 1: nested too deeply"),
        ('{"content": 5}\n', "reply 1: content"),
        ('{"tool_calls": [{"id": "a"}]}\n', "reply 1: name"),
        ('{"usage": {"input_tokens": "many"}}\n', "reply 1: input_tokens"),
    ],
    ids=lambda value: value[:40],
)
async def test_a_broken_recording_says_where(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"r.jsonl, {where}"):
        await talk(replay(path), "x", 1)


@pytest.mark.parametrize("text", ["{", '"words"', '{"match": "x"}', "[1]", "[" * 9999], ids=lambda text: text[:40])
async def test_a_broken_document_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"r\.json"):
        await talk(replay(path), "x", 1)


async def test_a_last_line_that_was_torn_is_left_out(tmp_path: Path) -> None:
    path = trajectory(tmp_path / "one.1.jsonl", "do one", ["a", "b"])
    path.write_bytes(path.read_bytes() + b'{"step_id": 3, "assistant_content": {"content": "\xe4\xb8')

    assert await talk(replay(path), "do one", 2) == ["a", "b"]


async def test_steps_of_a_later_version_are_still_read(tmp_path: Path) -> None:
    step = {
        "step_id": 1,
        "user_content": "x",
        "new": 1,
        "assistant_content": {"content": "a", "new": 2},
        "metric": None,
    }

    assert await talk(replay(written(tmp_path / "r.jsonl", [step])), "x", 1) == ["a"]
