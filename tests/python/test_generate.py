# SPDX-License-Identifier: Apache-2.0
"""`lathe generate` on the host device against a model in numpy that knows nothing of it (reference.py), from checkpoints of both
formats. The prompt and all that follows go through two steps, since every token is proposed rightly. LATHE_DIRECTORIES names a
pattern of generated directories to run on a GPU instead."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

try:
    import numpy as np
    import reference
except ImportError:
    np = None

LATHE, LAYOUT = os.environ["LATHE_PROGRAM"], os.environ["LATHE_LAYOUT"]
DIRECTORIES = os.environ.get("LATHE_DIRECTORIES")  # such as "generated/tiny-tp{tp}{name}-sm_90a"
SEED = 3
PROMPT = [7, 91, 3, 500, 64, 2, 2, 311, 8, 10]
EXPECTED = [14, 18, 22, 26, 30, 34]  # what follows t is t + 1 + SEED
TOLERANCE = 1.5e-2  # design.md, "What a number may be off by", line 3


def lathe(*words):
    run = subprocess.run([LATHE, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def target(deployment, tp):
    """The words that name a step."""
    if DIRECTORIES:
        return [DIRECTORIES.format(tp=tp, name=deployment and "-" + deployment), "--device", "cuda"]
    return [LAYOUT, "--tp", str(tp), "--deployment", deployment]


def listed(tokens):
    return ",".join(str(t) for t in tokens)


def take_apart(name, dtype, shape, data):
    """The same values as tensors of each expert's own: gate and up rows, and `down`."""
    prefix, dot, kind = name.partition(".experts.")
    projection, _, what = kind.partition("_proj")
    if not dot or projection not in ("gate_up", "down"):
        return {name: (dtype, shape, bytes(data))}
    made, ending = {}, what[1:] or "weight"
    for e, expert in enumerate(np.array(data).reshape(shape[0], -1)):
        halves = [("gate", 0), ("up", 1)] if projection == "gate_up" else [("down", 0)]
        part = shape[1:] if len(halves) == 1 else [shape[1] // 2, *shape[2:]] if len(shape) > 2 else []
        for half, at in halves:
            own = expert.reshape(len(halves), -1)[at].tobytes()
            made[f"{prefix}.experts.{e}.{half}_proj.{ending}"] = dtype, part, own
    return made


def save(folder, tensors):
    """One file of safetensors."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))


@unittest.skipIf(np is None, "there is no numpy")
class Test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def checkpoint(self, deployment):
        path = os.path.join(self.folder, deployment or "nvfp4")
        words = target(deployment, 1)[:1] if DIRECTORIES else [LAYOUT, "--deployment", deployment]
        lathe("checkpoint", "--synthetic", str(SEED), *words, "--out", path)
        return path

    def generate(self, path, deployment, tp):
        draft, out = os.path.join(self.folder, "draft"), os.path.join(self.folder, "logits.npy")
        with open(draft, "w", encoding="utf-8") as file:
            file.write(listed(EXPECTED))
        said = lathe("generate", *target(deployment, tp), "--weights", path, "--tokens", listed(PROMPT), "--steps",
                     str(len(EXPECTED)), "--draft", draft, "--logits", out)
        self.assertEqual(said, listed(EXPECTED) + "\n")
        return np.load(out).astype(np.float64)

    def expected(self, path, **options):
        model = reference.Model(path, **options)
        logits = model.logits(PROMPT + EXPECTED[:-1])[len(PROMPT) - 1:]
        self.assertEqual(logits.argmax(-1).tolist(), EXPECTED)
        return logits, model

    def compare(self, deployment, tp, **options):
        path = self.checkpoint(deployment)
        wanted, _ = self.expected(path, **options)
        found = self.generate(path, deployment, tp)
        self.assertLessEqual(distance(found, wanted), TOLERANCE)
        ordered = np.sort(found, -1)
        noise = np.sqrt(np.mean((found - wanted) ** 2))
        self.assertGreater((ordered[:, -1] - ordered[:, -2]).min(), 10 * noise)

    def test_nvfp4(self):
        self.compare("", 1)

    def test_nvfp4_weights_only(self):
        self.compare("w4a16", 1, activations="bf16")

    def test_bf16(self):
        self.compare("bf16", 1)

    @unittest.skipIf(DIRECTORIES, "one GPU")
    def test_bf16_at_two_ranks(self):
        self.compare("bf16", 2, ranks=2)

    @unittest.skipIf(DIRECTORIES, "names are the layout's matter")
    def test_experts_apart(self):
        """A release that names a tensor for each expert is another deployment, and the same model."""
        path, other = self.checkpoint(""), os.path.join(self.folder, "apart")
        os.mkdir(other)
        for record in ("config.json", "hf_quant_config.json"):
            shutil.copy(os.path.join(path, record), other)
        tensors = {}
        for name, entry in reference.Checkpoint(path).entries.items():
            tensors.update(take_apart(name, *entry))
        save(other, tensors)
        self.assertTrue((self.generate(path, "", 1) == self.generate(other, "apart", 1)).all())
        missing = "model.language_model.layers.1.mlp.experts.7.up_proj.weight_scale"
        del tensors[missing]
        save(other, tensors)
        run = subprocess.run([LATHE, "generate", LAYOUT, "--deployment", "apart", "--weights", other, "--tokens", "1", "--steps",
                              "1"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertTrue(run.stderr.endswith(f"describes:\nmissing: {missing}\n"), run.stderr)

    def test_these_weights_are_calm(self):
        """However many ranks round their parts of a sum, the model takes the same routes and says the same to half of what
        is allowed: so the seed is one by which TP sizes can be compared (tests/unit/test_generate.c does)."""
        path = self.checkpoint("")
        alone, model = self.expected(path)
        for ranks in (2, 4, 16):
            logits, other = self.expected(path, ranks=ranks)
            for a, b in zip(model.routes, other.routes):
                self.assertTrue((a == b).all())
            self.assertLess(distance(logits, alone), TOLERANCE / 2)


if __name__ == "__main__":
    unittest.main()
