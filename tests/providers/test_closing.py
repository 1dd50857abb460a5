"""Connections: closed once, also in the middle of a cancellation; none is left, on any loop."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from rein_nb.ir import StreamDone, TextDelta
from rein_nb.llm import LLM, Config
from rein_nb.stream import CancellationToken
from rein_nb.testing.server import serve_recording
from tests.providers.wires import CHAT, GOOGLE, KEY, MESSAGES, SDK_WIRES


def ids(wire):
    return wire.provider


def ok(body):
    return {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body}


def others() -> set[asyncio.Task]:
    return {
        task for task in asyncio.all_tasks() if task is not asyncio.current_task() and "_connection" not in repr(task)
    }


async def until_text(llm, **arguments):
    events = llm.astream_events("hi", **arguments)
    async for event in events:
        if isinstance(event, TextDelta):
            return events
    raise AssertionError("no text came")


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_C097_abandoned_streams_give_their_connections_back(wire, http):
    async with serve_recording(
        ok(wire.stream), cuts="events", hang_after=4 if wire is not GOOGLE else 1, repeat=True
    ) as server:
        llm = wire.llm(server)
        before = others()
        for n in range(6):
            if n % 3 == 0:
                events = await until_text(llm)
                await events.aclose()
            elif n % 3 == 1:
                task = asyncio.create_task(_read_all(llm))
                await _pieces(server, n + 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(ZeroDivisionError):
                    await _consumer_fails(llm)
        assert await server.wait_for_disconnects(6)
        await asyncio.sleep(0.02)
        assert others() == before
        server._hang_after = None
        async with asyncio.timeout(2):
            assert isinstance([event async for event in llm.astream_events("hi")][-1], StreamDone)
        await llm.aclose()


async def _pieces(server, requests):
    while len(server.requests) < requests or server.requests[-1].pieces_sent < 1:
        await asyncio.sleep(0.005)


async def _read_all(llm):
    async for _ in llm.astream_events("hi"):
        pass


async def _consumer_fails(llm):
    events = llm.astream_events("hi")
    try:
        async for event in events:
            if isinstance(event, TextDelta):
                raise ZeroDivisionError
    finally:
        await events.aclose()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_cancelling_by_token_closes_at_once(wire, http):
    async with serve_recording(ok(wire.stream), cuts="events", hang_after=4 if wire is not GOOGLE else 1) as server:
        llm = wire.llm(server)
        token = CancellationToken()
        loop = asyncio.get_running_loop()
        events = llm.astream_events("hi", signal=token)
        async for event in events:
            if isinstance(event, TextDelta):
                loop.call_later(0.05, token.cancel)
                begin = loop.time()
        assert event.completion.finish_reason == "cancelled"
        assert loop.time() - begin < 0.5
        assert await server.wait_for_disconnects(1)
        await llm.aclose()


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
def test_every_loop_has_its_own_client_which_ends_with_it(wire, http):
    with serve_recording(ok(wire.stream), repeat=True) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        llm = wire.llm(server)
        faults = []

        async def once():
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
            return [event async for event in llm.astream_events("hi")][-1]

        for _ in range(2):
            assert isinstance(asyncio.run(once()), StreamDone)
        assert llm.chat("hi").text == [*llm.stream("hi")][-1].completion.text
        gc.collect()
        assert faults == []


async def test_a_provider_nobody_holds_any_more_closes_its_client():
    async with serve_recording(ok(CHAT.stream), repeat=True) as server:
        llm = CHAT.llm(server)
        await _read_all(llm)
        held = next(iter(llm.backend._transport._held.values()))
        client = held.client
        del llm, held
        gc.collect()
        async with asyncio.timeout(3):
            while not client.is_closed():
                await asyncio.sleep(0.01)


async def test_closing_twice_and_using_again():
    async with serve_recording(ok(CHAT.stream), repeat=True) as server:
        llm = CHAT.llm(server)
        for _ in range(2):
            assert isinstance([event async for event in llm.astream_events("hi")][-1], StreamDone)
            await llm.aclose()
            await llm.aclose()


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
async def test_a_client_of_the_users_own_is_used_and_not_closed(wire):
    import anthropic
    import openai

    async with serve_recording(ok(wire.stream)) as server:
        url = server.base_url + wire.prefix
        kind = anthropic.AsyncAnthropic if wire is MESSAGES else openai.AsyncOpenAI
        client = kind(api_key="sk-own-0000000000", base_url=url, default_headers={"x-own": "yes"}, max_retries=5)
        llm = LLM(Config(provider=wire.provider, model=wire.model), client=client)
        assert isinstance([event async for event in llm.astream_events("hi")][-1], StreamDone)
        await llm.aclose()
        assert not client.is_closed()
        await client.close()
    assert server.requests[0].headers["x-own"] == "yes"
    assert (
        "sk-own-0000000000"
        in server.requests[0].headers["authorization" if wire is not MESSAGES else _key_header(server)]
    )


def _key_header(server):
    return next(name for name, value in server.requests[0].headers.items() if "sk-own" in value)


async def test_azure_by_a_client_of_the_users_own():
    import openai

    async with serve_recording(ok(CHAT.stream)) as server:
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=server.base_url, api_version="2024-10-21", api_key="azure-key-0000"
        )
        llm = LLM(Config(provider="azure", model="my-deployment"), client=client)
        events = [event async for event in llm.astream_events("hi")]
        await client.close()
    assert isinstance(events[-1], StreamDone)
    request = server.requests[0]
    assert request.path == "/openai/deployments/my-deployment/chat/completions"
    assert request.query == {"api-version": "2024-10-21"}


def test_clients_of_the_wrong_kind_are_refused():
    import anthropic
    import openai

    with pytest.raises(TypeError, match="AsyncOpenAI"):
        LLM(Config(provider="openai", model="gpt-5"), client=openai.OpenAI(api_key=KEY))
    with pytest.raises(TypeError, match="'openai' package"):
        LLM(Config(provider="openai", model="gpt-5"), client=anthropic.AsyncAnthropic(api_key=KEY))
    with pytest.raises(TypeError, match="no client"):
        LLM(Config(provider="google", model="gemini-2.5-pro"), client=openai.AsyncOpenAI(api_key=KEY))


async def test_many_streams_at_once_share_one_client():
    async with serve_recording(ok(CHAT.stream), cuts="events", delay_s=0.01, repeat=True) as server:
        llm = CHAT.llm(server)

        async def one():
            return [event async for event in llm.astream_events("hi")][-1]

        ends = await asyncio.gather(*(one() for _ in range(20)))
        assert all(isinstance(end, StreamDone) for end in ends)
        assert len(llm.backend._transport._held) == 1
        await llm.aclose()


@pytest.mark.parametrize("enabled", [True, False])
async def test_making_a_client_leaves_garbage_collection_as_it_was(enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        async with serve_recording(ok(CHAT.whole), repeat=True) as server:
            llm = CHAT.llm(server)
            await llm.achat("hi")
            assert gc.isenabled() is enabled
            await llm.aclose()
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=ids)
async def test_a_model_that_is_collected_within_a_cycle_closes_its_client_and_says_nothing(wire):
    from rein_nb.providers import transport

    said = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: said.append(context["message"]))
    before = set(transport._clients)
    async with serve_recording(ok(wire.stream), repeat=True) as server:
        llm = wire.llm(server)
        assert isinstance([event async for event in llm.astream_events("hi")][-1], StreamDone)
        assert set(transport._clients) - before
        cycle = [llm]
        cycle.append(cycle)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            del llm, cycle
            gc.collect()
            async with asyncio.timeout(5):
                while set(transport._clients) - before:
                    await asyncio.sleep(0.01)
                    gc.collect()
    assert not said
    assert not [warning for warning in warned if "nclosed" in str(warning.message)]
