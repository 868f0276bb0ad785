"""Outstanding messages of one subscription: who holds which until when, and the ack ids that say so.

Place: the subscribe forwarder's memory of what it has delivered. `lease` turns a batch payload into the bytes of a
PullResponse or StreamingPullResponse, `acknowledge` and `modify` take requests as they came from the wire.
Times are whole ticks of 10 ms; a lease is over once its deadline <= now. Offsets are in [0, 2**62), sources u64,
consumers u32 numbers of the caller's (the highest is kept for "nobody"). Memory: 20 KiB per 1,024 offsets with anything
outstanding among them (`blocks`), and one spare block.
Promises: each of the three raises before anything has changed, or does its work wholly. Every lease has an ack id of
its own (`ackids`): its serial counts the calls of `lease`, its epoch distinguishes tables of the subscription, its
generation changes with every seek.
Left to the caller: order, redelivery and its delay, flow control, dead letters, storing what was acknowledged.
"""

from __future__ import annotations

import cython

from .ackids import key_words
from .errors import BadAckId, Invalid, Malformed

if cython.compiled:
    from .blocks import NEVER
else:
    from ._bytes import (
        Field,
        ReadPtr,
        WritePtr,
        array_ptr,
        as_bytes,
        bit_at,
        copy,
        cut,
        finished,
        get32,
        get64,
        i64,
        new_buffer,
        put32,
        put64,
        put_varint,
        read_field,
        read_ptr,
        u32,
        u64,
        varint_size,
        write_ptr,
    )
    from .ackids import read_ack_id, spell, write_ack_id
    from .acks import RunWriter
    from .blocks import NEVER, Holder, LeaseBlock
    from .filters import match_at
    from .frames import next_message

OFFSET_END = 1 << 62
NOBODY = 0xFFFFFFFF
_U32_END = 1 << 32
_CONFIRMED = cython.declare(cython.uint, 1 << 31)  # in a block's size: its holder modified the deadline
_U64_END = 1 << 64
_SECONDS_END = 1 << 31


def list_ids(request: object, field: int) -> list:
    """The ack ids of a request as bytes, unchecked. Raises Malformed."""
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    part: Field
    found: list = []
    while at < end:
        part = read_field(p, at, end)
        if part.number == 0:
            raise Malformed("the request is not a protobuf message")
        if part.number == field and part.wire == 2:
            found.append(cut(p, part.start, part.stop))
        at = part.stop
    return found


def _whole(name: str, value: int, end: int) -> int:
    if not 0 <= value < end:
        raise ValueError(f"{name} out of range: {value}")
    return value


@cython.final
@cython.cclass
class LeaseTable:
    """The leases of one subscription. `key` (16 bytes) seals its ack ids; `epoch` and `generation` are u32."""

    def __init__(self, key: bytes, epoch: int, generation: int) -> None:
        self._k0, self._k1 = key_words(key)
        self.epoch = _whole("epoch", epoch, _U32_END)
        self.generation = _whole("generation", generation, _U32_END)
        self.last_serial = 0
        self._raw = bytearray(36)
        self._spare = None
        self._clear()

    def _clear(self) -> None:
        self._sources = {}  # source -> {block number -> LeaseBlock}
        self._holders = {}  # consumer -> Holder, of those who hold anything
        self._messages = self._bytes = 0
        self._earliest = NEVER  # not later than any block's
        self._recent = None
        self._recent_holder = None
        self._recent_consumer = 0

    def __repr__(self) -> str:
        return f"<LeaseTable {self._messages} messages, {self._bytes} bytes, {len(self._holders)} consumers>"

    # -- delivering ----------------------------------------------------------------------------------------------------

    def lease(
        self,
        source: int,
        payload: object,
        first_offset: int,
        begin: int,
        end: int,
        skip: object,
        program: object,
        consumer: int,
        deadline: int,
        max_messages: int,
        max_bytes: int,
        attempt: int,
        first_max_bytes: int = -1,
    ) -> tuple:
        """Lease messages of a batch to a consumer until `deadline`, and write them as a response carries them.

        Walks over the offsets of [begin, end) that the payload, which starts at `first_offset`, holds. Passed over:
        those whose bit is set in `skip` (bit i = first_offset + i; may be None or short), and those outstanding. Those
        the filter `program` does not match are dropped, to be acknowledged by the caller. Stops before more than
        `max_messages` are given, and before `max_bytes` is exceeded (as stored, PubsubMessage bytes), except that the
        first one may be of any size if `max_bytes` > 0, or up to `first_max_bytes` where that is not negative.
        `attempt` > 0 is written as delivery_attempt.
        Returns (response, next offset to look at, messages given, their bytes, dropped as encoded runs).
        Raises Malformed for a broken payload or program, ValueError for numbers out of range.
        """
        data: bytes = as_bytes(payload)
        p: ReadPtr = read_ptr(data)
        size: cython.Py_ssize_t = len(data)
        mask: bytes = b"" if skip is None else as_bytes(skip)
        skipped: ReadPtr = read_ptr(mask)
        skip_bits: i64 = len(mask) << 3
        code: bytes = as_bytes(program)
        filtering: ReadPtr = read_ptr(code)
        code_size: cython.Py_ssize_t = len(code)
        from_source: u64 = _whole("source", source, _U64_END)
        offset: i64 = _whole("first offset", first_offset, OFFSET_END)
        first: i64 = offset
        start: i64 = max(_whole("begin", begin, OFFSET_END + 1), offset)
        stop: i64 = min(max(end, 0), OFFSET_END)
        holder_number: u32 = _whole("consumer", consumer, NOBODY)
        until: i64 = _whole("deadline", deadline, NEVER)
        messages_left: i64 = max(0, min(max_messages, OFFSET_END))
        bytes_max: i64 = max(0, min(max_bytes, OFFSET_END))
        first_bytes_max: i64 = OFFSET_END if first_max_bytes < 0 else min(first_max_bytes, OFFSET_END)
        tries: u32 = _whole("attempt", max(attempt, 0), _SECONDS_END)

        at: cython.Py_ssize_t = 0
        after: cython.Py_ssize_t
        message: cython.Py_ssize_t
        bit: cython.Py_ssize_t
        given: i64 = 0
        total: i64 = 0
        response_size: cython.Py_ssize_t = 0
        attempt_size: cython.Py_ssize_t = 1 + varint_size(tries) if tries else 0
        block: LeaseBlock = None
        block_end: i64 = 0
        verdict: cython.int
        dropped: RunWriter = RunWriter()
        drop_begin: i64 = 0
        drop_end: i64 = -1

        # First look, then change: which messages are given is a bitmap over the walked offsets.
        while offset < start and at < size:
            at = next_message(p, at, size)
            offset += 1
        walk: cython.Py_ssize_t = at
        start = offset
        chosen: bytearray = bytearray(max(0, min(stop - start, (size - at) >> 2)) + 7 >> 3)
        choice: WritePtr = array_ptr(chosen)
        while offset < stop and at < size and given < messages_left and bytes_max > 0:
            after = next_message(p, at, size)
            if offset >= block_end:
                block = self._find(from_source, offset)
                block_end = (offset | 1023) + 1
            if (offset - first < skip_bits and bit_at(skipped, offset - first)) or (
                block is not None and block.serial[offset & 1023] != 0
            ):
                at = after
                offset += 1
                continue
            if code_size > 0:
                verdict = match_at(filtering, code_size, p, at + 4, after)
                if verdict < 0:
                    raise Malformed("a filter program or its message is malformed")
                if verdict == 0:
                    if drop_end != offset:
                        if drop_end >= 0:
                            dropped.add(drop_begin, drop_end - drop_begin)
                        drop_begin = offset
                    at = after
                    offset += 1
                    drop_end = offset
                    continue
            message = after - at - 4
            if total + message > (bytes_max if given > 0 else first_bytes_max):
                break
            bit = offset - start
            choice[bit >> 3] |= 1 << (bit & 7)
            given += 1
            total += message
            message += 51 + varint_size(message) + attempt_size
            response_size += 1 + varint_size(message) + message
            at = after
            offset += 1
        if drop_end >= 0:
            dropped.add(drop_begin, drop_end - drop_begin)
        response: bytes = b""
        if given > 0:
            response = new_buffer(response_size)
            self._count_in(holder_number, given, total, until)
            self._give(
                p, walk, size, from_source, start, choice, given, write_ptr(response), holder_number, until, tries
            )
            response = finished(response)
        return response, max(begin, min(offset, stop)), given, total, bytes(dropped.data)

    def _count_in(self, consumer: u32, messages: i64, size: i64, deadline: i64):
        """Take note of new leases: a new serial, and what the consumer holds."""
        holder: Holder = self._holder(consumer)
        if holder is None:
            holder = self._holders[consumer] = Holder()
            self._recent_holder = holder
            self._recent_consumer = consumer
        holder.messages += messages
        holder.bytes += size
        self._messages += messages
        self._bytes += size
        self._earliest = min(self._earliest, deadline)
        self.last_serial = 1 if self.last_serial == 0xFFFFFFFF else self.last_serial + 1

    def _give(
        self,
        p: ReadPtr,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        source: u64,
        offset: i64,
        choice: WritePtr,
        given: i64,
        out: WritePtr,
        consumer: u32,
        deadline: i64,
        tries: u32,
    ):
        """Lease and write the chosen messages of a payload; `at` and `offset` belong to bit 0 of `choice`."""
        o: cython.Py_ssize_t = 0
        raw: WritePtr = array_ptr(self._raw)
        attempt_size: cython.Py_ssize_t = 1 + varint_size(tries) if tries else 0
        after: cython.Py_ssize_t
        message: cython.Py_ssize_t
        bit: cython.Py_ssize_t = 0
        slot: cython.Py_ssize_t
        block: LeaseBlock = None
        block_end: i64 = 0
        serial: u32 = self.last_serial
        k0: u64 = self._k0
        k1: u64 = self._k1
        put64(raw, 0, source)
        put32(raw, 16, serial)
        put32(raw, 20, self.epoch)
        put32(raw, 24, self.generation)
        while given > 0:
            after = next_message(p, at, size)
            if (choice[bit >> 3] >> (bit & 7)) & 1:
                if offset >= block_end:
                    block = self._make(source, offset)
                    block_end = (offset | 1023) + 1
                    block.serial_low = min(block.serial_low, serial)
                    block.serial_high = max(block.serial_high, serial)
                    if deadline < block.earliest:
                        block.earliest = deadline
                        block.exact = True
                message = after - at - 4
                slot = offset & 1023
                block.serial[slot] = serial
                block.deadline[slot] = deadline
                block.consumer[slot] = consumer
                block.size[slot] = message
                block.outstanding += 1
                out[o] = 0x0A
                o = put_varint(out, o + 1, 51 + varint_size(message) + message + attempt_size)
                out[o] = 0x0A
                out[o + 1] = 48
                put64(raw, 8, offset)
                write_ack_id(out, o + 2, raw, k0, k1)
                out[o + 50] = 0x12
                o = put_varint(out, o + 51, message)
                copy(out, o, p, at + 4, message)
                o += message
                if tries:
                    out[o] = 0x18
                    o = put_varint(out, o + 1, tries)
                given -= 1
            at = after
            offset += 1
            bit += 1

    # -- answers come back
    # --------------------------------------------------------------------------------------------------

    def acknowledge(self, request: object, field: int, now: int, strict: bool, void: dict | None = None) -> tuple:
        """End the leases of the ack ids in the repeated string field `field` of a request.

        Returns (ack ids in the request, [(source, encoded runs of what is acknowledged)], failed ack ids).
        Not strict: every ack id of this generation acknowledges, whether or not its lease still stands; those of other
        generations do nothing, nor do those that are void: `void` has, by (source, offset), the last serial whose lease
        was taken back; of its message that one and all before it count no more.
        Strict (exactly-once): only the newest ack id of an outstanding message, of this epoch and generation, whose
        deadline is not over; others fail. An id sent twice in one request counts once.
        Raises Malformed, or BadAckId for an id this subscription never wrote; then nothing has changed.
        """
        data: bytes = as_bytes(request)
        held: bytes = finished(self._read_ids(data, _whole("field", field, _U32_END)))
        ids: ReadPtr = read_ptr(held)
        size: cython.Py_ssize_t = len(held)
        at: cython.Py_ssize_t
        tick: i64 = _whole("time", now, NEVER)
        exactly: cython.bint = bool(strict)
        generation: u32 = self.generation
        source: u64
        run_source: u64 = 0
        offset: i64
        run_begin: i64 = 0
        run_end: i64 = -1
        slot: cython.Py_ssize_t
        block: LeaseBlock
        runs: dict = {}
        failed: list = []
        for at in range(0, size, 36):
            source = get64(ids, at)
            offset = get64(ids, at + 8)
            slot = offset & 1023
            block = self._find(source, offset)
            if exactly:
                if not self._is_current(block, ids, at) or block.deadline[slot] <= tick:
                    failed.append(at)
                    continue
            elif get32(ids, at + 24) != generation or (void and self._is_void(void, ids, at)):
                continue
            if block is not None and block.serial[slot] != 0:
                self._drop(block, slot)
            if offset == run_end and source == run_source:
                run_end += 1
                continue
            if run_end >= 0:
                _add_run(runs, run_source, run_begin, run_end)
            run_source = source
            run_begin = offset
            run_end = offset + 1
        if run_end >= 0:
            _add_run(runs, run_source, run_begin, run_end)
        acknowledged: list = [(number, _data_of(writer)) for number, writer in runs.items()]
        return size // 36, acknowledged, self._failures(ids, size, failed) if failed else failed

    def modify(self, request: object, ids_field: int, deadline_seconds: object, now: int, strict: bool) -> tuple:
        """Set the deadlines of the ack ids in `ids_field` to so many seconds from now; 0 ends the lease (nack).

        `deadline_seconds` is one number, or a list with one for each id. Only the newest ack id of an outstanding
        message does anything; others are ignored, or fail if strict; so do, if strict, those whose deadline is over.
        Returns ([(source, offset)] of the nacked, failed ack ids).
        Raises Malformed, BadAckId as in `acknowledge`, Invalid for numbers that are negative or too few or many.
        """
        data: bytes = as_bytes(request)
        held: bytes = finished(self._read_ids(data, _whole("field", ids_field, _U32_END)))
        ids: ReadPtr = read_ptr(held)
        size: cython.Py_ssize_t = len(held)
        at: cython.Py_ssize_t
        index: cython.Py_ssize_t = 0
        tick: i64 = _whole("time", now, NEVER)
        exactly: cython.bint = bool(strict)
        each: cython.bint = not isinstance(deadline_seconds, int)
        wanted: list = list(deadline_seconds) if each else [deadline_seconds]
        seconds: i64
        slot: cython.Py_ssize_t
        block: LeaseBlock
        nacked: list = []
        failed: list = []
        if each and len(wanted) != size // 36:
            raise Invalid("modify_deadline_seconds", "must have one value per ack id")
        for number in wanted:
            if number < 0:
                raise Invalid("ack_deadline_seconds", "Ack deadline cannot be negative")
            if number >= _SECONDS_END:
                raise Invalid("ack_deadline_seconds", "Ack deadline is too large")
        seconds = 0 if each else wanted[0]
        for at in range(0, size, 36):
            if each:
                seconds = wanted[index]
                index += 1
            block = self._find(get64(ids, at), get64(ids, at + 8))
            slot = get64(ids, at + 8) & 1023
            if not self._is_current(block, ids, at) or (exactly and block.deadline[slot] <= tick):
                if exactly:
                    failed.append(at)
            elif seconds == 0:
                self._drop(block, slot)
                nacked.append((get64(ids, at), get64(ids, at + 8)))
            else:
                self._postpone(block, slot, tick + seconds * 100)
        return nacked, self._failures(ids, size, failed) if failed else failed

    # -- time and consumers --------------------------------------------------------------------------------------------

    def expire(self, now: int) -> list:
        """End all leases whose deadline <= now; returns their (source, offset), in order."""
        tick: i64 = _whole("time", now, NEVER)
        slot: cython.Py_ssize_t
        earliest: i64 = NEVER
        block: LeaseBlock
        ended: list = []
        if self._earliest > tick:
            return ended
        for block in self._all_blocks():
            if block.earliest <= tick:
                for slot in range(1024):
                    if block.serial[slot] != 0 and block.deadline[slot] <= tick:
                        ended.append((block.source, (block.number << 10) + slot))
                        self._drop(block, slot)
                block.refresh()
            earliest = min(earliest, block.earliest)
        self._earliest = earliest
        return ended

    def next_deadline(self) -> int:
        """The earliest deadline of all leases, in ticks; -1 if there are none."""
        earliest: i64 = NEVER
        block: LeaseBlock
        blocks: dict
        for blocks in self._sources.values():
            for block in blocks.values():
                if block.earliest < earliest:
                    if not block.exact:
                        block.refresh()
                    earliest = min(earliest, block.earliest)
        self._earliest = earliest
        return -1 if self._messages == 0 else earliest

    def release_serial(self, serial: int) -> list:
        """End the leases of one call of `lease`; returns their (source, offset), in order."""
        wanted: u32 = _whole("serial", serial, _U32_END)
        slot: cython.Py_ssize_t
        block: LeaseBlock
        ended: list = []
        if wanted == 0:
            return ended
        for block in self._all_blocks():
            if block.serial_low <= wanted <= block.serial_high:
                for slot in range(1024):
                    if block.serial[slot] == wanted:
                        ended.append((block.source, (block.number << 10) + slot))
                        self._drop(block, slot)
        return ended

    def release_consumer(self, consumer: int, unconfirmed: bool = False) -> list:
        """End all leases of a consumer, or only those whose deadlines were never modified: nothing says that they
        arrived. Returns their (source, offset), in order.
        """
        wanted: u32 = _whole("consumer", consumer, NOBODY)
        spared: u32 = _CONFIRMED if unconfirmed else 0
        slot: cython.Py_ssize_t
        block: LeaseBlock
        ended: list = []
        for block in self._all_blocks():
            if self._holder(wanted) is None:
                break
            for slot in range(1024):
                if block.serial[slot] != 0 and block.consumer[slot] == wanted and block.size[slot] & spared == 0:
                    ended.append((block.source, (block.number << 10) + slot))
                    self._drop(block, slot)
        return ended

    def revoke(self, source: int, offset: int) -> bool:
        """End one lease; its ack id is worth nothing from now on. False if there was none."""
        place: i64 = _whole("offset", offset, OFFSET_END)
        block: LeaseBlock = self._find(_whole("source", source, _U64_END), place)
        if block is None or block.serial[place & 1023] == 0:
            return False
        self._drop(block, place & 1023)
        return True

    def drop_source(self, source: int) -> None:
        """End all leases of a source."""
        slot: cython.Py_ssize_t
        block: LeaseBlock
        for block in list(self._sources.get(source, {}).values()):
            for slot in range(1024):
                if block.serial[slot] != 0:
                    self._drop(block, slot)

    def reset(self, generation: int) -> None:
        """End all leases, and begin another generation: ack ids of earlier ones are worth nothing from now on."""
        self.generation = _whole("generation", generation, _U32_END)
        self._clear()

    # -- asking --------------------------------------------------------------------------------------------------------

    def is_outstanding(self, source: int, offset: int) -> bool:
        """Whether a message is leased."""
        place: i64 = _whole("offset", offset, OFFSET_END)
        block: LeaseBlock = self._find(_whole("source", source, _U64_END), place)
        return block is not None and block.serial[place & 1023] != 0

    def holder(self, source: int, offset: int) -> int:
        """The consumer who has a message; -1 if it is not outstanding."""
        place: i64 = _whole("offset", offset, OFFSET_END)
        block: LeaseBlock = self._find(_whole("source", source, _U64_END), place)
        if block is None or block.serial[place & 1023] == 0:
            return -1
        return block.consumer[place & 1023]

    def outstanding(self, consumer: int) -> tuple:
        """(messages, bytes) a consumer has."""
        holder: Holder = self._holder(_whole("consumer", consumer, NOBODY))
        if holder is None:
            return 0, 0
        return holder.messages, holder.bytes

    def total(self) -> tuple:
        """(messages, bytes) outstanding."""
        return self._messages, self._bytes

    def oldest(self) -> tuple | None:
        """(source, offset) of the outstanding message leased by the earliest call; None. Looks at all leases."""
        slot: cython.Py_ssize_t
        age: u32
        oldest: u32 = 0
        block: LeaseBlock
        found: tuple = None
        for block in self._all_blocks():
            for slot in range(1024):
                if block.serial[slot] != 0:
                    age = (self.last_serial - block.serial[slot]) & NOBODY
                    if found is None or age > oldest:
                        oldest = age
                        found = (block.source, (block.number << 10) + slot)
        return found

    def lent(self) -> list:
        """(source, first offset, end) of all that is outstanding, in order; for tools. Looks at all leases."""
        slot: cython.Py_ssize_t
        offset: i64
        block: LeaseBlock
        found: list = []
        begin: i64 = 0
        end: i64 = -1
        source: u64 = 0
        for block in self._all_blocks():
            for slot in range(1024):
                if block.serial[slot] != 0:
                    offset = (block.number << 10) + slot
                    if offset != end or block.source != source:
                        if end >= 0:
                            found.append((source, begin, end))
                        source, begin = block.source, offset
                    end = offset + 1
        if end >= 0:
            found.append((source, begin, end))
        return found

    def blocks(self) -> int:
        """Blocks in use, 20 KiB each; for tools."""
        return sum([len(blocks) for blocks in self._sources.values()])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find(self, source: u64, offset: i64):
        """The block an offset falls into, or None."""
        number: i64 = offset >> 10
        block: LeaseBlock = self._recent
        blocks: dict
        if block is not None and block.number == number and block.source == source:
            return block
        blocks = self._sources.get(source)
        if blocks is None:
            return None
        block = blocks.get(number)
        if block is not None:
            self._recent = block
        return block

    def _make(self, source: u64, offset: i64):
        """The block an offset falls into, a new one if there is none."""
        block: LeaseBlock = self._find(source, offset)
        if block is not None:
            return block
        block = LeaseBlock() if self._spare is None else self._spare
        self._spare = None
        block.begin(source, offset >> 10)
        self._sources.setdefault(source, {})[offset >> 10] = block
        self._recent = block
        return block

    def _holder(self, consumer: u32):
        """What a consumer holds, or None."""
        holder: Holder = self._recent_holder
        if holder is not None and self._recent_consumer == consumer:
            return holder
        holder = self._holders.get(consumer)
        if holder is not None:
            self._recent_holder = holder
            self._recent_consumer = consumer
        return holder

    def _drop(self, block: LeaseBlock, slot: cython.Py_ssize_t):
        """End the lease in a slot that is outstanding; the block must not be used for more than asking afterwards."""
        holder: Holder = self._holder(block.consumer[slot])
        size: u32 = block.size[slot] & (_CONFIRMED - 1)
        blocks: dict
        holder.messages -= 1
        holder.bytes -= size
        if holder.messages == 0:
            del self._holders[block.consumer[slot]]
            self._recent_holder = None
        self._messages -= 1
        self._bytes -= size
        block.serial[slot] = 0
        block.outstanding -= 1
        if block.deadline[slot] == block.earliest:
            block.exact = False
        if block.outstanding == 0:
            blocks = self._sources[block.source]
            del blocks[block.number]
            if not blocks:
                del self._sources[block.source]
            self._recent = None
            self._spare = block

    def _postpone(self, block: LeaseBlock, slot: cython.Py_ssize_t, deadline: i64):
        """Move the deadline of a lease, in either direction."""
        if block.deadline[slot] == block.earliest:
            block.exact = False
        block.deadline[slot] = deadline
        block.size[slot] |= _CONFIRMED
        if deadline <= block.earliest:
            block.earliest = deadline
            block.exact = True
        self._earliest = min(self._earliest, deadline)

    def _read_ids(self, request: bytes, wanted: u32):
        """The ack ids of a request, 36 bytes each, all of them with the right tag. Raises Malformed, BadAckId."""
        p: ReadPtr = read_ptr(request)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(request)
        found: cython.Py_ssize_t = 0
        good: cython.bint
        part: Field
        k0: u64 = self._k0
        k1: u64 = self._k1
        while at < end:
            part = read_field(p, at, end)
            if part.number == 0:
                raise Malformed("the request is not a protobuf message")
            if part.number == wanted and part.wire == 2:
                found += 36
            at = part.stop
        buffer = new_buffer(found)
        ids: WritePtr = write_ptr(buffer)
        at = found = 0
        while at < end:
            part = read_field(p, at, end)
            at = part.stop
            if part.number != wanted or part.wire != 2:
                continue
            good = part.stop - part.start == 48 and read_ack_id(p, part.start, ids, found, k0, k1)
            if not good or get64(ids, found + 8) >> 62 != 0:
                raise BadAckId(cut(p, part.start, part.stop))
            found += 36
        return buffer

    def _is_current(self, block: LeaseBlock | None, ids: ReadPtr, at: cython.Py_ssize_t):
        """Whether the ack id is the newest one of a message that is outstanding in `block` (which may be None)."""
        return (
            block is not None
            and get32(ids, at + 16) != 0
            and block.serial[get64(ids, at + 8) & 1023] == get32(ids, at + 16)
            and get32(ids, at + 20) == self.epoch
            and get32(ids, at + 24) == self.generation
        )

    def _is_void(self, void: dict, ids: ReadPtr, at: cython.Py_ssize_t):
        """Whether the ack id's lease was taken back; see `acknowledge`. One of another epoch is older than our own."""
        last: u32
        found: object = void.get((get64(ids, at), get64(ids, at + 8)))
        if found is None:
            return False
        last = found
        return get32(ids, at + 20) != self.epoch or ((last - get32(ids, at + 16)) & NOBODY) >> 31 == 0

    def _failures(self, ids: ReadPtr, size: cython.Py_ssize_t, failed: list):
        """The ack ids at the places `failed`, each once, without those that went well elsewhere in the request."""
        at: cython.Py_ssize_t
        sent: dict = {}
        tally: dict = {}
        for at in range(0, size, 36):
            ack_id = cut(ids, at, at + 36)
            sent[ack_id] = sent.get(ack_id, 0) + 1
        for at in failed:
            ack_id = cut(ids, at, at + 36)
            tally[ack_id] = tally.get(ack_id, 0) + 1
        return [_spelled(ack_id) for ack_id, times in tally.items() if times == sent[ack_id]]

    def _all_blocks(self):
        """All blocks by source and offset; a list of its own, so that blocks may go in the meantime."""
        return [blocks[number] for _, blocks in sorted(self._sources.items()) for number in sorted(blocks)]


def _spelled(ack_id: bytes) -> bytes:
    buffer = new_buffer(48)
    spell(read_ptr(ack_id), 0, write_ptr(buffer), 0)
    return finished(buffer)


def _data_of(writer: RunWriter) -> bytes:
    return bytes(writer.data)


@cython.cfunc
def _add_run(runs: dict, source: u64, begin: i64, end: i64):
    writer: RunWriter = runs.get(source)
    if writer is None:
        writer = runs[source] = RunWriter()
    writer.add(begin, end - begin)
