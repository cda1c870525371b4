"""A client of `siege.py` over HTTP/2 in clear text, with prior knowledge.

Needs the Python module h2, which the interop-venv has.
"""

import asyncio
import contextlib

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from shoppers import Answer
from siege_client import Client

# The loop itself does not keep tasks alive.
READING = set()


class Http2Client(Client):
    """Asks on one connection, with a stream for each request; or, if it keeps none, on a new one each time."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.line, self.opening = None, asyncio.Lock()

    async def send(self, request):
        while True:
            line, is_new = await self.find_line()
            try:
                return await line.ask(request)
            except ConnectionError:
                # A kept connection may have been closed meanwhile.
                if is_new or not line.is_over:
                    raise
            finally:
                if not self.keeps:
                    line.close()

    async def find_line(self):
        """A connection, and whether it is new."""
        async with self.opening:
            is_new = self.line is None or self.line.is_over or not self.keeps
            if is_new:
                self.line = Line(*await self.connect())
            return self.line, is_new


class Line:
    """A connection. It is over when no further request may be sent on it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.is_over, self.replies = False, {}
        config = h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        self.state = h2.connection.H2Connection(config)
        self.state.initiate_connection()
        self.flush()
        reading = asyncio.create_task(self.read())
        READING.add(reading)
        reading.add_done_callback(READING.discard)

    async def ask(self, request):
        if self.is_over:
            raise ConnectionResetError("the connection is over")
        fields = [(":method", request.method), (":scheme", "http"), (":path", request.target)]
        lines = (line.partition(":") for line in request.fields.splitlines())
        fields += [(":authority", "bench.test"), *((name.lower(), value.strip()) for name, _, value in lines)]
        stream = self.state.get_next_available_stream_id()
        reply = self.replies[stream] = Reply()
        try:
            self.state.send_headers(stream, fields, end_stream=not request.body)
            if request.body:
                self.state.send_data(stream, request.body.encode(), end_stream=True)
            self.flush()
            return await reply.answer
        except h2.exceptions.H2Error as error:
            raise ConnectionAbortedError(str(error)) from error
        finally:
            del self.replies[stream]
            # Nothing waits for the answer any more.
            if not reply.answer.done() or reply.answer.cancelled():
                self.cancel(stream)

    def cancel(self, stream):
        with contextlib.suppress(h2.exceptions.H2Error):
            self.state.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
            self.flush()

    async def read(self):
        with contextlib.suppress(EOFError, OSError, h2.exceptions.H2Error):
            while True:
                # Frame by frame: what follows a GOAWAY is to be taken, too.
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                for event in self.state.receive_data(head + payload):
                    self.note(event)
                self.flush()
        self.close()

    def note(self, event):
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.DataReceived):
            self.state.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.end_after(event.last_stream_id)
        if reply := self.replies.get(stream):
            reply.note(event)

    def end_after(self, last):
        """The other side takes no stream after this one, and answers those before."""
        self.is_over = True
        # h2 takes the connection for closed, and would refuse these answers.
        self.state.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        for stream, reply in self.replies.items():
            if stream > last:
                reply.fail()

    def flush(self):
        if data := self.state.data_to_send():
            self.writer.write(data)

    def close(self):
        self.is_over = True
        for reply in self.replies.values():
            reply.fail()
        self.writer.close()


class Reply:
    """An answer that comes on a stream."""

    def __init__(self):
        self.answer = asyncio.get_running_loop().create_future()
        self.head, self.body, self.status = "", b"", 0

    def note(self, event):
        if isinstance(event, h2.events.ResponseReceived):
            self.status = int(dict(event.headers)[":status"])
            self.head = "\r\n".join([f"HTTP/2 {self.status}", *(f"{name}: {value}" for name, value in event.headers)])
        elif isinstance(event, h2.events.DataReceived):
            self.body += event.data
        elif isinstance(event, h2.events.StreamEnded) and not self.answer.done():
            self.answer.set_result(Answer(self.status, self.head, self.body.decode()))
        elif isinstance(event, h2.events.StreamReset):
            self.fail()

    def fail(self):
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError("the stream is closed"))
