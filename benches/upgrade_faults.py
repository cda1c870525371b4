"""Upgrades of `upgrade.py` that cannot succeed. Clients must not notice, and the next one must succeed.

Python's standard library only.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import lab

# How long a new process may take until it holds the store.
STORE_S = 20
# How often it is tried to kill one in the moment in which it holds the store.
TRIES = 5
MOMENT_S = 0.002
CRASH = "#!/bin/sh\necho this program crashes >&2\nkill -SEGV $$\n"
# What clap says of an option that it does not know.
OLDER = "#!/bin/sh\necho \"error: unexpected argument '--take-over=x' found\" >&2\nexit 2\n"
# No user may make a file there, not even root.
FORBIDDEN = "/sys/anteroom.log"


def program(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def changed(proxy, before, after):
    """The configuration with a text in another's place, for as long as the `with` block."""
    old = proxy.config.read_text()
    assert before in old
    proxy.config.write_text(old.replace(before, after, 1))
    try:
        yield
    finally:
        proxy.config.write_text(old)


def bad_configuration(proxy):
    with changed(proxy, "[log]", "[log]\nnonsense = 1"):
        return proxy.upgrade(), "exit status: 64", "nonsense"


def log_without_permission(proxy):
    with changed(proxy, f'to = "{proxy.folder}/anteroom.log"', f'to = "{FORBIDDEN}"'):
        return proxy.upgrade(), FORBIDDEN, "denied"


def crash(proxy):
    binary = program(proxy.folder, "crashes", CRASH)
    return proxy.upgrade("--binary", binary), "this program crashes", "signal: 11"


def older(proxy):
    binary = program(proxy.folder, "older", OLDER)
    return proxy.upgrade("--binary", binary), "exit status: 2", "--take-over"


def full_disk(proxy):
    """The log of the new process would be on a disk without room for one more file."""
    disk = proxy.folder / "full"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=2", "none", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        return None
    try:
        (disk / "last").touch()
        with changed(proxy, f'to = "{proxy.folder}/anteroom.log"', f'to = "{disk}/anteroom.log"'):
            return proxy.upgrade(), f"{disk}/anteroom.log", "No space left on device"
    finally:
        subprocess.run(["umount", disk], check=True)


def killed(proxy):
    """A process that serves already must not be killed; then it is tried again."""
    for _ in range(TRIES):
        is_killed = False

        def kill(process, command):
            nonlocal is_killed
            if not stop_with_store(proxy, process):
                return
            # By now the command has ended if the process serves.
            time.sleep(0.3)
            is_killed = command.poll() is None
            os.kill(process, signal.SIGKILL if is_killed else signal.SIGCONT)

        upgrade = proxy.upgrade(meanwhile=kill)
        if is_killed:
            return upgrade, "signal: 9", ""
    return upgrade, "a process that was killed while it held the store", ""


def stop_with_store(proxy, process):
    """Stops a process when it holds the store. It runs for moments until then; False if it ended before."""
    deadline = time.monotonic() + STORE_S
    with contextlib.suppress(OSError):
        while time.monotonic() < deadline:
            os.kill(process, signal.SIGSTOP)
            if holds_store(proxy, process):
                return True
            os.kill(process, signal.SIGCONT)
            time.sleep(MOMENT_S)
    return False


def holds_store(proxy, process):
    """Whether it has opened the file of sessions, or a connection to Redis."""
    files = set()
    for entry in os.scandir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            files.add(os.readlink(entry.path))
    if proxy.url is None:
        return any(file.startswith(str(proxy.folder)) and file.endswith(".redb") for file in files)
    port = int(proxy.url.rpartition(":")[2].partition("/")[0])
    return any(f"socket:[{inode}]" in files for inode in connections_to(port))


def connections_to(port):
    """The inodes of established connections to a port of this machine."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(f":{port:04X}") and fields[3] == "01":
            yield fields[9]


FAULTS = {
    "a mistake in proxy.toml": bad_configuration,
    "a log without permission": log_without_permission,
    "a crash at the start": crash,
    "killed with the store": killed,
    "a program that knows no take-over": older,
    "a full disk": full_disk,
}


def play(proxy, where, result, options):
    """Lets each fail, and an upgrade succeed before and after it."""
    good = [proxy.upgrade()]
    result.steps.append(good[0].at)
    if good[0].code:
        return result.add_upgrades(good)
    failed = tried = 0
    for name, fault in FAULTS.items():
        before = proxy.process
        outcome = fault(proxy)
        if outcome is None:
            result.notes.append(f"{name}: left out: this system allows no tmpfs")
            continue
        upgrade, *words = outcome
        tried += 1
        result.steps.append(upgrade.at)
        wrong = judge(proxy, upgrade, words, before)
        failed += not wrong
        result.add_faults(name, [(upgrade.at, f"{text}: {upgrade.said.strip()}") for text in wrong])
        result.notes.append(f"{name}: it failed after {upgrade.took * 1e3:.0f} ms")
        time.sleep(options.every / 2)
        good.append(proxy.upgrade())
        result.steps.append(good[-1].at)
        time.sleep(options.every / 2)
    result.add_upgrades(good)
    result.cells["failing upgrades"] = f"{failed} of {tried}"


def judge(proxy, upgrade, words, before):
    """What is not as it should be after an upgrade that must fail."""
    wrong = []
    if upgrade.code != 1 or proxy.process != before:
        wrong.append(f"the exit code is {upgrade.code}")
    wrong += [f"the reason lacks {word!r}" for word in words if word not in upgrade.said]
    if upgrade.process and upgrade.code and pathlib.Path(f"/proc/{upgrade.process}").exists():
        wrong.append("the new process has not ended")
    # A new process counts from 0.
    if lab.metrics(proxy.first).get("anteroom_upgrades_failed_total") != 1:
        wrong.append("anteroom_upgrades_failed_total is not 1")
    return wrong
