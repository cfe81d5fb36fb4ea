# SPDX-License-Identifier: Apache-2.0
"""The Python package on the host device: the same tokens as the command line, errors with the library's words."""

import array
import ctypes
import os
import re
import subprocess
import sys
import unittest

import lathe
from lathe import _library
from lathe._tensor import place

try:
    import numpy
except ImportError:
    numpy = None

TINY = os.environ["LATHE_TINY"]
DEVICE = os.environ.get("LATHE_DEVICE", "host")
on_host = unittest.skipIf(DEVICE != "host", "the memory bound here is the host's; tools/python/example binds a GPU's")
PROMPT = [7, 91, 10]
EXPECTED = [14, 18, 22]  # seed 3: what follows t is t + 4
ITEM = {"bf16": 2, "f32": 4, "u8": 1, "e4m3": 1}


def size(a, pages=None):
    count = 1
    for i, n in enumerate(a.shape):
        count *= pages if pages and i == 0 else n
    return count * ITEM[a.dtype]


def decode(engine, prompt, steps):
    """Greedy, a token at a time; page p of the request is page p of the caches."""
    info, known, out = engine.info(), list(prompt), []
    for position in range(len(prompt) + steps - 1):
        engine.write("tokens", array.array("i", [known[position]]))
        engine.write("positions", array.array("q", [position]))
        for name, (_, pages) in info.groups.items():
            engine.write(f"block_tables.{name}", array.array("i", range(pages)))
            engine.write(f"seq_lens.{name}", array.array("i", [position + 1]))
            engine.write(f"slot_mapping.{name}", array.array("q", [position]))
        engine.run(engine.plan(requests=1, q=1, longest=position + 1))
        engine.finish()
        if position + 1 >= len(prompt):
            out.append(engine.read("next_tokens", count=1)[0])
            known.append(out[-1])
    return out, bytes(engine.read("logits", count=512))


def rows_of(engine, requests, q, prompt):
    """Logits of the rows of the first request, as bits; the others hold other tokens, or nothing."""
    info = engine.info()
    longest, rows = len(prompt), requests * q
    tokens = list(prompt) + [(7 * i + 1) % 512 for i in range(rows - q)]
    engine.write("tokens", array.array("i", tokens))
    engine.write("positions", array.array("q", [i % q for i in range(rows)]))
    for name, (_, pages) in info.groups.items():
        last = requests - 1 if requests > 1 else requests  # the last of several is padding
        engine.write(f"block_tables.{name}", array.array("i", [pages * r + p for r in range(requests) for p in range(pages)]))
        engine.write(f"seq_lens.{name}", array.array("i", [longest if r < last else 0 for r in range(requests)]))
        slots = [16 * pages * (i // q) + i % q if i // q < last else -1 for i in range(rows)]
        engine.write(f"slot_mapping.{name}", array.array("q", slots))
    engine.run(engine.plan(requests=requests, q=q, longest=longest))
    engine.finish()
    return bytes(engine.read("logits", count=q * 512))


class Aligned:
    """Zeroed memory at a multiple of 64, as a writable buffer of bytes."""

    def __init__(self, nbytes):
        self.raw = bytearray(nbytes + 64)
        start = -ctypes.addressof(ctypes.c_char.from_buffer(self.raw)) % 64
        self.view = memoryview(self.raw)[start:start + nbytes]


class Tensor:
    """Looks like PyTorch's."""

    def __init__(self, memory, dtype, shape):
        self.memory, self.dtype, self.shape = memory, "torch." + dtype, shape

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory.view))

    def stride(self):
        steps, step = [], 1
        for n in reversed(self.shape):
            steps.insert(0, step)
            step *= n
        return steps


NAMES = {"bf16": "bfloat16", "f32": "float32", "u8": "uint8", "e4m3": "float8_e4m3fn"}


class Test(unittest.TestCase):
    def engine(self, **options):
        engine = lathe.Engine(TINY, device=DEVICE, **options)
        self.addCleanup(engine.close)
        return engine

    def fails(self, status, words, call, *arguments, **named):
        with self.assertRaises(lathe.Error) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.status, status)
        self.assertIn(words, str(caught.exception))

    def test_structs_are_those_of_the_header(self):
        with open(os.environ["LATHE_HEADER"]) as header:
            text = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.S)
        bodies = {name: body for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", text)}
        for name, struct in _library.STRUCTS.items():
            found = []
            for declaration in bodies[name].split(";"):
                pointer = re.search(r"\(\*(\w+)\)", declaration)
                declaration = re.sub(r"\[[^\]]*\]", "", declaration)
                words = re.findall(r"\w+", declaration.split(",")[0])
                if pointer:
                    found.append(pointer.group(1))
                elif words:
                    found.append(words[-1])
                    found += [w.strip(" *\n") for w in declaration.split(",")[1:]]
            self.assertEqual(found, [f[0] for f in struct._fields_], name)
        calls = set(re.findall(r"\b(lathe_\w+)\(", text))
        self.assertLessEqual(set(_library.CALLS), calls)

    def test_tokens_and_what_a_step_is(self):
        said = []
        engine = self.engine(log=lambda kind, text, done, total: said.append((kind, text)))
        self.assertIsNone(engine.unsupported())
        engine.build("calm:3")
        self.assertIn(("note", "compiling"), said)
        info = engine.info()
        self.assertEqual((info.layout, info.layers, info.variants), ("muse_spark_tiny", 4, ((1, 1), (1, 8), (4, 8))))
        self.assertEqual(info.groups, {"sliding": (40, 8), "full": (0, 8)})
        tokens, _ = decode(engine, PROMPT, 3)
        self.assertEqual(tokens, EXPECTED)
        self.assertEqual(engine.find("hidden").dtype, "bf16")
        self.assertIn("next_tokens", [a.name for a in engine.arrays("output")])
        # The stream that enters layer 2, for a drafter: of a width of about one.
        streams = [a for a in engine.arrays("output") if a.name == "aux"]
        self.assertEqual([(a.layer, a.dtype, a.shape[1]) for a in streams], [(2, "f32", 256)])
        aux = engine.read("aux", 2, count=256)
        self.assertAlmostEqual(sum(x * x for x in aux) / 256, 1, delta=0.5)

    def test_companions_change_no_bit_of_an_invariant_deployment(self):
        engine = lathe.Engine(os.environ["LATHE_INVARIANT"], device=DEVICE)
        self.addCleanup(engine.close)
        engine.build("calm:3")
        prompt = [7, 91, 3, 500, 64, 2, 2, 311]
        self.assertEqual(rows_of(engine, 4, 8, prompt), rows_of(engine, 1, 8, prompt))

    def test_errors_are_the_librarys(self):
        self.fails(lathe.Status.IO, "no/such", lathe.Engine, "no/such")
        engine = self.engine()
        self.fails(lathe.Status.INVALID, "the engine is not built", engine.plan, requests=1, q=1, longest=1)
        self.fails(lathe.Status.IO, "no/such/weights: No such file", engine.build, "no/such/weights")
        engine.build("calm:3")
        self.fails(lathe.Status.UNSUPPORTED, "q: found 2, no variant has it", engine.plan, requests=1, q=2, longest=2)
        self.fails(lathe.Status.INVALID, "no buffer has the name \"nothing\"", engine.read, "nothing")
        engine.close()
        self.fails(lathe.Status.INVALID, "the engine is closed", engine.finish)
        with self.assertRaises(ValueError):
            lathe.Engine(TINY, device="tpu")
        with self.assertRaisesRegex(ValueError, "role: found caches, allowed: weight, prepared, kv"):
            self.engine().arrays("caches")

    def test_what_is_asked_for_is_compared(self):
        engine = self.engine(serving={"kv_dtype": "fp8"})
        self.assertEqual(engine.unsupported(), "KV dtype: found fp8, allowed: bf16")
        self.assertIsNone(self.engine(serving={"rope_theta": 500000.0, "requests": 1, "q": 8}).unsupported())

    @on_host
    def test_bound_memory_gives_the_same_bits(self):
        plain = self.engine()
        plain.build("calm:3")
        _, wanted = decode(plain, PROMPT, 3)
        engine = self.engine(external_caches=True)
        weights = {}
        for a in engine.arrays("weight"):
            memory = Aligned(size(a))
            memory.view[:] = memoryview(plain.read(a.name, a.layer)).cast("B")
            weights[(a.name, a.layer)] = Tensor(memory, NAMES[a.dtype], a.shape)
        name = next(iter(weights))
        self.fails(lathe.Status.INVALID, "dtype: found f64", engine.bind_weights,
                   {name: Tensor(weights[name].memory, "float64", weights[name].shape)})
        engine.bind_weights(weights)
        engine.build()
        caches = {(a.name, a.layer): Tensor(Aligned(size(a, 8)), "bfloat16", (8, *a.shape[1:]))
                  for a in engine.arrays("kv")}
        self.fails(lathe.Status.INVALID, "no real cache is bound", engine.plan, requests=1, q=1, longest=1)
        engine.bind_caches(caches)
        tokens, found = decode(engine, PROMPT, 3)
        self.assertEqual(tokens, EXPECTED)
        self.assertEqual(found, wanted)

    def test_two_ranks_are_two_groups(self):
        meeting = lathe.Meeting(2)
        groups = [meeting.join(rank) for rank in range(2)]
        engine = lathe.Engine(TINY, group=groups[0])
        self.assertEqual(engine.unsupported(),
                         "tensor parallelism: the directory is for 1 ranks, this engine's group has 2")
        self.fails(lathe.Status.INVALID, "found 1 engines open, allowed: none", groups[0].close)
        engine.close()
        self.fails(lathe.Status.INVALID, "found 2 groups open, allowed: none", meeting.close)
        for group in groups:
            group.close()
        meeting.join(0)  # nobody keeps it: it is closed
        self.fails(lathe.Status.INVALID, "the group is closed", lathe.Engine, TINY, group=groups[0])
        meeting.close()
        meeting.close()
        self.fails(lathe.Status.INVALID, "the meeting is closed", meeting.join, 0)

    def test_buffers_have_places(self):
        p = place(array.array("H", [1, 2, 3]))
        self.assertEqual((p.dtype, p.shape, p.strides), ("u16", (3,), (1,)))

    def test_what_is_written_has_the_values_type(self):
        engine = self.engine()
        engine.build("calm:3")
        with self.assertRaisesRegex(TypeError, "tokens: dtype: found i64, allowed i32"):
            engine.write("tokens", array.array("q", [1]))
        engine.write("tokens", memoryview(bytes(4)).cast("i"))
        engine.close()

    def test_a_serving_field_that_does_not_exist(self):
        with self.assertRaisesRegex(TypeError, "no field is called shared_expert"):
            self.engine(serving={"shared_expert": 4})

    def test_numbers_and_text_that_c_would_cut(self):
        for field, value in (("rank", 1 << 32), ("seed", 1 << 64), ("seed", -1), ("jobs", -(1 << 31) - 1), ("kv_pages", 1 << 63),
                             ("ordinal", 1 << 31), ("timeout", -1), ("stream", 1 << 64),
                             ("serving", {"requests": 1 << 63, "q": 1})):
            with self.assertRaisesRegex(OverflowError, "found -?[0-9]+, allowed: ", msg=field):
                self.engine(**{field: value})
        for call in (lambda: lathe.Engine(TINY + "\0x"), lambda: self.engine(cache="a\0b"),
                     lambda: self.engine(serving={"kv_dtype": "bf16\0"}), lambda: lathe.Group.by_file("a\0b", 0, 2)):
            with self.assertRaisesRegex(ValueError, "found a NUL"):
                call()
        for call in (lambda: lathe.Meeting((1 << 32) + 2), lambda: lathe.Group.by_file("x", 1 << 32, 2)):
            with self.assertRaises(OverflowError):
                call()
        engine = self.engine()
        with self.assertRaisesRegex(ValueError, "found a NUL"):
            engine.build("calm:3\0")
        engine.build(b"calm:3")
        for call in (lambda: engine.find("hidden", 1 << 32), lambda: engine.read("hidden", offset=-1, count=1),
                     lambda: engine.write("tokens", array.array("i", [1]), offset=1 << 64),
                     lambda: engine.plan(requests=1 << 64, q=1, longest=1)):
            with self.assertRaises(OverflowError):
                call()
        with self.assertRaisesRegex(ValueError, "found a NUL"):
            engine.read("hidden\0")
        with self.assertRaises(TypeError):
            engine.plan(requests=1.5, q=1, longest=1)

    def test_a_library_that_is_not_there(self):
        run = subprocess.run([sys.executable, "-c", "import lathe; lathe.Meeting(2)"], capture_output=True, text=True, check=False,
                             env={**os.environ, "LATHE_LIBRARY": "/no/such/liblathe.so"})
        self.assertEqual(run.returncode, 1)
        self.assertIn("the environment's LATHE_LIBRARY may name liblathe.so", run.stderr)

    def test_the_version_is_the_librarys(self):
        with open(os.path.join(os.path.dirname(os.environ["LATHE_HEADER"]), "..", "CMakeLists.txt")) as lists:
            self.assertIn(f"project(lathe VERSION {lathe.__version__} ", lists.read())

    @on_host
    @unittest.skipIf(numpy is None, "there is no numpy")
    def test_memory_that_cannot_be_bound(self):
        a = numpy.zeros((4, 6), numpy.uint16)
        self.assertEqual(place(a.astype(">u2")).dtype, ">u2")
        odd = numpy.lib.stride_tricks.as_strided(a, (2, 6), (13, 2))
        with self.assertRaisesRegex(ValueError, r"strides of \(13, 2\) bytes"):
            place(odd)
        engine = self.engine(external_caches=True)
        engine.build("calm:3")
        b = engine.arrays("kv")[0]
        cache = numpy.zeros((8, *b.shape[1:]), numpy.uint16)
        cache.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            engine.bind_caches({(b.name, b.layer): cache})
        engine.close()

    @on_host
    @unittest.skipIf(numpy is None, "there is no numpy")
    def test_an_empty_cache_takes_nothing_away(self):
        engine = self.engine(external_caches=True)
        engine.build("calm:3")
        kv = engine.arrays("kv")
        engine.bind_caches({(b.name, b.layer): numpy.zeros((8, *b.shape[1:]), numpy.uint16) for b in kv})
        engine.bind_caches({(b.name, b.layer): numpy.zeros((0, *b.shape[1:]), numpy.uint16) for b in kv})
        tokens, _ = decode(engine, array.array("i", PROMPT), 3)  # on the memory that only the engine keeps
        self.assertEqual(tokens, EXPECTED)
        engine.close()

    @on_host
    @unittest.skipIf(numpy is None, "there is no numpy")
    def test_numpy(self):
        class Pack:
            """Only DLPack."""

            def __init__(self, a):
                self.a = a

            def __dlpack__(self):
                return self.a.__dlpack__()

        a = numpy.arange(24, dtype=numpy.uint16).reshape(4, 6)
        for tensor in (a, Pack(a)):
            p = place(tensor)
            self.assertEqual((p.address, p.dtype, p.shape, p.strides), (a.ctypes.data, "u16", (4, 6), (6, 1)))
        self.assertEqual(place(a.T).strides, (1, 6))
        engine = self.engine(external_caches=True)
        engine.build("calm:3")
        kept = [(b, numpy.zeros((8, *b.shape[1:]), numpy.uint16)) for b in engine.arrays("kv")]
        engine.bind_caches({(b.name, b.layer): Pack(cache) for b, cache in kept})
        tokens, _ = decode(engine, numpy.asarray(PROMPT), 3)
        self.assertEqual(tokens, EXPECTED)
        self.assertTrue(all(cache.any() for _, cache in kept))  # the keys and values lie there
        logits = numpy.asarray(engine.read("logits", count=512))
        self.assertEqual((logits.dtype, int(logits.argmax())), (numpy.float32, EXPECTED[-1]))


if __name__ == "__main__":
    unittest.main()
