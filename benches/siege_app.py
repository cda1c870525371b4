"""The app of `siege.py`: it works on a few requests at a time, first come, first served.

Python's standard library only.
"""

import asyncio
import contextlib
import multiprocessing
import time

import lab
from shoppers import value_of


def serve_app(port, ready, busy_s, requests, options):
    """The app, in a process of its own; counts busy seconds of all workers, and the requests that it began."""
    free = asyncio.Semaphore(options.workers)
    at_work, since = 0, time.monotonic()

    def count(change):
        nonlocal at_work, since
        now = time.monotonic()
        busy_s.value += at_work * (now - since)
        at_work, since = at_work + change, now

    async def converse(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                form = await reader.readexactly(int(value_of(head, "content-length") or 0))
                target, came = head.split(" ", 2)[1], time.monotonic()
                async with free:
                    requests.value += 1
                    count(1)
                    await asyncio.sleep({"/slow": 3, "/fast": 0.02}.get(target[:5], options.service))
                    count(-1)
                took = f"App-Took: {time.monotonic() - came:.6f}\r\n"
                writer.write(app_answer(target, head, form.decode(), options.fresh, took))

    async def serve():
        async with await asyncio.start_server(converse, "127.0.0.1", port, backlog=4096):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(serve())


def app_answer(target, head, form, fresh_s, more):
    status, fields, shown = "200 OK", "Cache-Control: no-store\r\n", target
    if "/private" in target:
        shown = value_of(head, "x-anteroom-user") or "no user"
    elif form:
        status = "303 See Other"
        fields += f"Location: /private\r\nAnteroom-Login: {form.partition('user=')[2]}\r\n"
    elif target.startswith("/login"):
        shown = "<form method=post><input name=user></form>"
    else:
        fields = f"Cache-Control: max-age={fresh_s if target.startswith('/read/') else 60}\r\n"
    page = f"<!doctype html><title>Page</title><p>{shown}</p>"
    fields += f"{more}Content-Type: text/html\r\nContent-Length: {len(page)}\r\n"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n{page}".encode()


@contextlib.contextmanager
def running_app(options):
    """The app's port, its busy seconds and its requests, for as long as the `with` block."""
    port, ready = lab.free_port(), multiprocessing.Event()
    busy_s, requests = multiprocessing.Value("d", 0), multiprocessing.Value("q", 0)
    arguments = (port, ready, busy_s, requests, options)
    process = multiprocessing.Process(target=serve_app, args=arguments, daemon=True)
    process.start()
    ready.wait()
    try:
        yield port, busy_s, requests
    finally:
        process.terminate()
        process.join()
