"""Instructions of the products' inner loops, per 1,000 weights, counted by callgrind: no clock, no noise.

    python3 bench/instructions.py build/dev/bench/assay_peer            writes bench/baselines/instructions-avx2.json
    python3 bench/instructions.py build/dev/bench/assay_peer --check    compares with it; exit 1 when one grew

Needs valgrind (scripts/install-deps --count), which knows no AVX-512: hence AVX2. One row of x, one thread,
weights of a fixed seed, K = 4096; what a call of 256 rows of W takes beyond one of 128, so that the work done
once a call (the layout of x) is not in the figure. Kernels come from the program: one group size of each format
that can encode, `fused`; and `fused-a8` where it has a kernel of its own instead of rounding x before the same
one. A format without a kernel on this target runs the generic one, whose figure is that of its decoder.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

K = 4096
ROWS = (128, 256)
# Names whose loops are those of a format that stays: rules of encoding, other sizes of group or block; and the
# formats of caches, which are no weights.
LEFT_OUT = re.compile(r":|g32$|(affine|int)\dg128$|tq\dg64$|block32$|b128$|-channel$|-tensor$|^ds")

# The allocator, whose path depends on what the heap has seen; comparisons of planes' names, which depend on where
# these lie; the linker, which binds symbols at first use.
UNSTEADY = re.compile(
    r":[\w.]*(alloc|memalign|free|unlink_chunk|memcmp)[\w.]*( \[|$)|/malloc/|/elf/|ld-linux|operator (new|delete)")


class Peer:
    def __init__(self, program, target):
        self.program = program
        self.environment = {**os.environ, "ASSAY_TARGET": target}

    def run(self, command, commands):
        done = subprocess.run([*command, self.program], env=self.environment, text=True, capture_output=True,
                              input="".join(f"{line}\n" for line in commands))
        if done.returncode != 0:
            raise SystemExit(f"{commands[-1]}: {done.stderr.strip()}")
        return done

    def ask(self, *commands):
        return self.run([], commands).stdout.splitlines()[-1]

    def implementation(self, spec):
        return self.ask("threads 1", f"product {spec} 1 {K} 16 1").split(" ", 3)[3]

    def count(self, spec, rows):
        """Instructions of one call: `product` makes one, and nothing outside it is counted."""
        with tempfile.TemporaryDirectory() as folder:
            counts = f"{folder}/counts"
            self.run(
                ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}",
                 "--toggle-collect=assay::Matmul::Run(*"],
                ["threads 1", f"product {spec} 1 {K} {rows} 1"])
            table = subprocess.run(["callgrind_annotate", "--threshold=100", counts], text=True,
                                   capture_output=True, check=True).stdout
        functions = re.findall(r"^ *([\d,]+) \( *[\d.]+%\)  (.*:.*)$", table, re.MULTILINE)
        if not functions:
            raise SystemExit(f"{self.program}: no symbol assay::Matmul::Run; is it stripped?")
        return sum(int(number.replace(",", "")) for number, name in functions if not UNSTEADY.search(name))


def kernels(peer, pattern):
    """Variant → what runs."""
    found = {}
    for name in peer.ask("formats").split():
        if LEFT_OUT.search(name):
            continue
        for spec in (name, f"{name}:fused-a8"):
            if not fnmatch.fnmatch(spec, pattern):
                continue
            runs = peer.implementation(spec)
            if not runs.startswith("int8-rounded x"):
                found[spec] = runs
    return found


def measure(peer, pattern):
    measured = {}
    for spec, runs in sorted(kernels(peer, pattern).items()):
        few, many = (peer.count(spec, rows) for rows in ROWS)
        per_1000 = (many - few) / ((ROWS[1] - ROWS[0]) * K / 1000)
        measured[spec] = {"per_1000": round(per_1000, 2), "runs": runs}
        print(f"{spec:24} {per_1000:10.2f}  {runs}", flush=True)
    return measured


def write(path, facts, measured):
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in facts.items()]
    lines += ['  "kernels": {',
              ",\n".join(f"    {json.dumps(spec)}: {json.dumps(one)}" for spec, one in measured.items()),
              "  }"]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["{", *lines, "}"]) + "\n")


def compare(was, now, tolerance):
    """Prints the table; true when a kernel takes more than `tolerance` % more instructions than it did."""
    grew = False
    print(f"\n{'kernel':24} {'was':>10} {'now':>10}  change")
    for spec in sorted(was | now):
        if spec not in now:
            print(f"{spec:24} {was[spec]['per_1000']:10.2f} {'':10}  gone")
        elif spec not in was:
            print(f"{spec:24} {'':10} {now[spec]['per_1000']:10.2f}  new")
        else:
            before, after = was[spec]["per_1000"], now[spec]["per_1000"]
            change = 100 * (after / before - 1)
            grew |= change > tolerance
            print(f"{spec:24} {before:10.2f} {after:10.2f}  {change:+.2f} %"
                  f"{'  GREW' if change > tolerance else ''}"
                  f"{'  another kernel' if was[spec]['runs'] != now[spec]['runs'] else ''}")
    return grew


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", help="build/*/bench/assay_peer")
    parser.add_argument("--check", action="store_true", help="compare with the baseline, write nothing")
    parser.add_argument("--tolerance", type=float, default=2, help="growth in %% that --check lets pass; default 2")
    parser.add_argument("--only", default="*", help="with --check: a pattern of names, 'affine*'")
    parser.add_argument("--target", default="avx2", help="avx2, sse4 or scalar; each has its own baseline")
    options = parser.parse_args()
    path = pathlib.Path(__file__).parent / "baselines" / f"instructions-{options.target}.json"
    if options.only != "*" and not options.check:
        parser.error("--only: a baseline holds every kernel; it goes with --check")
    if options.check and not path.exists():
        parser.error(f"{path.name}: no such baseline; without --check one is written")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")

    peer = Peer(options.peer, options.target)
    facts = {"compiler": peer.ask("compiler"), "target": peer.ask("target"), "m": 1, "k": K, "n": ROWS}
    baseline = json.loads(path.read_text()) if options.check else None
    measured = measure(peer, options.only)
    if not measured:
        parser.error(f"--only: no kernel is called {options.only}")
    if baseline is None:
        write(path, facts, measured)
        return
    if baseline["compiler"] != facts["compiler"]:
        print(f"\nthe baseline is {baseline['compiler']}'s, this is {facts['compiler']}'s")
    was = {spec: one for spec, one in baseline["kernels"].items() if fnmatch.fnmatch(spec, options.only)}
    if compare(was, measured, options.tolerance):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
