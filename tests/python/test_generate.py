# SPDX-License-Identifier: Apache-2.0
"""`lathe generate` on the host device against a model in numpy that knows nothing of it (reference.py), from checkpoints of both
formats. The prompt and all that follows go through two steps, since every token is proposed rightly. LATHE_DIRECTORIES names a
pattern of generated directories to run on a GPU instead."""

import os
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
