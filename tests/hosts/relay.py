#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody between two hosts, to whom all TCP connections are redirected, and who passes them on.

Usage: relay.py PORT DEED SEED RECORDING

DEED is what he does, once, to one of the first connections, at a place that SEED chooses:
  nothing  only passes on
  repeat   passes a piece on twice
  reorder  passes a piece on after the next one
  omit     passes a piece not on
  reflect  also sends a piece back to where it comes from
  cut      closes a connection in the middle
  replay   connects to where a caller has connected, and says again what the caller had said
All that passes is written to RECORDING. Prints "ready", and the deed when it is done.
"""

import asyncio
import random
import socket
import struct
import sys

SO_ORIGINAL_DST = 80
PIECE = 65536


class Relay:
    def __init__(self, deed, seed, recording):
        chosen = random.Random(seed)
        self.deed = deed
        self.connection = chosen.randrange(4)  # two to the server, then control and data
        self.piece = chosen.choice((0, 1, 2, 4) if self.connection < 2 else (0, 1, 2, 8, 30))
        self.from_caller = chosen.random() < 0.5
        self.recording = recording
        self.connections = 0
        self.done = False

    def due(self, number, from_caller, piece):
        if self.done or self.deed == "nothing" or number != self.connection:
            return False
        if from_caller != (self.from_caller or self.deed == "replay") or piece < self.piece:
            return False
        self.done = True
        side = "caller" if from_caller else "callee"
        print(f"{self.deed}: connection {number}, piece {piece} of the {side}", flush=True)
        return True

    async def accept(self, reader, writer):
        number = self.connections
        self.connections += 1
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack("!2xH4s8x", raw)
        callee = (socket.inet_ntoa(address), port)
        try:
            far_reader, far_writer = await asyncio.open_connection(*callee)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, far_writer)
        await asyncio.gather(self.pass_on(number, True, reader, far_writer, ends, callee),
                             self.pass_on(number, False, far_reader, writer, ends, callee))

    async def pass_on(self, number, from_caller, reader, writer, ends, callee):
        back = ends[0] if from_caller else ends[1]
        held = said = b""
        count = 0
        try:
            while piece := await reader.read(PIECE):
                self.recording.write(piece)
                said += piece if from_caller and self.deed == "replay" and len(said) < 1 << 20 else b""
                outgoing = piece + held
                held = b""
                if self.due(number, from_caller, count):
                    if self.deed == "cut":
                        for end in ends:
                            end.transport.abort()
                        return
                    if self.deed == "replay":
                        asyncio.get_running_loop().create_task(self.replay(callee, said))
                    if self.deed == "reflect":
                        back.write(piece)
                    if self.deed == "reorder":
                        held, outgoing = outgoing, b""
                    if self.deed == "omit":
                        outgoing = b""
                    if self.deed == "repeat":
                        outgoing += piece
                count += 1
                writer.write(outgoing)
                await writer.drain()
            writer.write(held)
            writer.write_eof()
        except OSError:
            for end in ends:
                end.transport.abort()

    async def replay(self, callee, said):
        try:
            reader, writer = await asyncio.open_connection(*callee)
            writer.write(said)
            while piece := await reader.read(PIECE):
                self.recording.write(piece)
            writer.close()
        except OSError:
            pass


async def main():
    port, deed, seed, path = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    with open(path, "wb", buffering=0) as recording:
        relay = Relay(deed, seed, recording)
        server = await asyncio.start_server(relay.accept, "0.0.0.0", port, backlog=1000)
        print("ready", flush=True)
        async with server:
            await server.serve_forever()


asyncio.run(main())
