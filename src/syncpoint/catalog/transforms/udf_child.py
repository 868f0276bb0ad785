"""The program of a process that runs JavaScript functions, and does nothing else. It is run by its path, isolated:
nothing of the project is imported.

Frames, both ways: one byte for the kind, a length (4 bytes, little endian), UTF-8 of that length. What comes in, in
order: `L` the name of a project, a zero byte, a function's name, a zero byte and its code: from now on this function is
meant, in an engine that no other project's messages have been in; `R` a JSON list [message, metadata]: run it. Each is
answered by one frame: `V` with the JSON that the function returned, `N` for null, `E` with an error. Once it has
started, and when a function is loaded, that is `V` with nothing.

Time is that of the processor which this process uses, so a machine with much to do fails no message: after `CPU_S` the
engine stops a function; where it cannot (inside a regular expression), the system ends the process after `CPU_END_S`,
by SIGPROF.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
from collections import OrderedDict

import quickjs

CPU_S = 0.45  # of one message
CPU_END_S = 0.5
ATTRIBUTES_MAX = 200  # of a message that a function returns: more than a message may have in any case
HEAP_BYTES = 64 << 20  # of one function
STACK_BYTES = 256 << 10
FUNCTIONS_MAX = 8  # kept compiled
ADDRESS_BYTES = 1 << 30
HEAD = struct.Struct("<cI")

# Taken before the function's code is there, which may change every prototype.
RUNNER = """
(() => {
  const { parse, stringify } = JSON, { isArray } = Array, keys = Object.keys;
  globalThis.__syncpoint = (call, text) => {
    const [message, metadata] = parse(text);
    const found = call(message, metadata);
    if (found === null) return "N";
    if (typeof found !== "object" || isArray(found)) return "Eit returned neither a message nor null";
    const { data, attributes } = found;
    if (typeof data !== "string") return "Eit returned a message whose data is not a string";
    if (attributes === undefined || attributes === null)
      return "V" + stringify({ __proto__: null, data, attributes: { __proto__: null } });
    if (typeof attributes !== "object" || isArray(attributes)) return "Eit returned attributes that are not an object";
    const copied = { __proto__: null }; // read once, and without a toJSON that the function may have defined
    const names = keys(attributes);
    if (names.length > ATTRIBUTES_MAX) return "Eit returned more than ATTRIBUTES_MAX attributes";
    for (const key of names) {
      const value = attributes[key];
      if (typeof value !== "string") return "Eit returned an attribute that is not a string";
      copied[key] = value;
    }
    return "V" + stringify({ __proto__: null, data, attributes: copied });
  };
})();
"""


class LoadedFunction:
    """One function in an engine of its own. Raises `quickjs.JSException` when the code cannot be run."""

    def __init__(self, name: str, code: str) -> None:
        self.context = quickjs.Context()
        self.context.set_memory_limit(HEAP_BYTES)
        self.context.set_max_stack_size(STACK_BYTES)
        self.context.set_time_limit(CPU_S)
        self.context.eval(RUNNER.replace("ATTRIBUTES_MAX", str(ATTRIBUTES_MAX)))
        run = self.context.get("__syncpoint")
        self.context.eval("delete globalThis.__syncpoint")
        self.context.eval(code)
        call = self.context.eval(f"typeof {name} === 'function' ? {name} : null")
        if call is None:
            raise quickjs.JSException(f"the code defines no function {name}")
        self.run, self.call = run, call


def reason(error: BaseException) -> str:
    """One line for the user; the engine has no words left when its memory is used up."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:500]
    if line in ("null", "MemoryError") or "out of memory" in line:
        return f"it needs more than {HEAP_BYTES >> 20} MiB of memory"
    if line.startswith("(Failed obtaining QuickJS error string"):
        return "it threw something that has no text"
    return f"it ran longer than {CPU_S} s" if line == "InternalError: interrupted" else line


def answer(functions: OrderedDict[str, LoadedFunction], meant: str, kind: bytes, text: str) -> tuple[str, bytes, str]:
    """What is meant from now on, and what is answered."""
    if kind == b"L":
        meant = text
        if meant in functions:
            functions.move_to_end(meant)
            return meant, b"V", ""
        while len(functions) >= FUNCTIONS_MAX:
            functions.popitem(last=False)
    try:
        function = functions.get(meant)
        if function is None:
            function = functions[meant] = LoadedFunction(*meant.split("\0", 2)[1:])
        if kind == b"L":
            return meant, b"V", ""
        found = function.run(function.call, text)
        return meant, found[:1].encode(), found[1:]
    except (quickjs.JSException, quickjs.StackOverflow, MemoryError) as error:
        functions.pop(meant, None)  # whatever it has left there
        return meant, b"E", reason(error)


def main() -> None:
    """Answer until the other side is gone."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.chdir("/")
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # No file, socket or process more than those it has.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    functions: OrderedDict[str, LoadedFunction] = OrderedDict()
    meant = ""
    sink.write(HEAD.pack(b"V", 0))  # it has started
    sink.flush()
    while len(head := source.read(HEAD.size)) == HEAD.size:
        kind, size = HEAD.unpack(head)
        text = source.read(size).decode()
        signal.setitimer(signal.ITIMER_PROF, CPU_END_S)
        meant, kind, text = answer(functions, meant, kind, text)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        found = text.encode("utf-8", "replace")
        sink.write(HEAD.pack(kind, len(found)) + found)
        sink.flush()


if __name__ == "__main__":
    main()
