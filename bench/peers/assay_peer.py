"""Drives build/*/bench/assay_peer: Assay as a process that answers one line per command."""

import subprocess
import time


def cpu_seconds(action):
    """CPU time of all threads of this process: other programs on the machine do not count."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


class AssayPeer:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"assay_peer ended at: {' '.join(map(str, words))}")
        return answer.strip()

    def cpu_seconds(self, *words):
        _wall, cpu = self.ask(*words).split()
        return float(cpu)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
