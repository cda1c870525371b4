"""The proxies that `run` measures: how each is configured, started, and asked for its version.

Python's standard library only. It measures nothing by itself.
"""

import collections
import getpass
import os
import pathlib
import re
import shutil
import subprocess
import sys

BENCHES = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCHES))

import kinds  # noqa: E402
import lab  # noqa: E402

BARE = BENCHES / "peers" / "bare"
PROXY_CORE, CLIENT_CORE = 0, 1
# Room for pages, of those that have a bound.
MEMORY_MIB = 256

# What all proxies are started with: the folder of the run, the origin's port, the certificate with its key, the core
# (None: any), whether they log each request, and the binaries by name.
Bench = collections.namedtuple("Bench", "folder origin_port certificate core logs binaries")


class Side:
    """A proxy that runs: its processes, its ports by name, its access log, and the cookie of a session."""

    def __init__(self, name, processes, ports, log=None, cookie="login=" + 43 * "x"):
        self.name, self.processes, self.ports, self.log, self.cookie = name, processes, ports, log, cookie
        self.lines = self.requests = 0

    def cpu_s(self):
        return sum(process.cpu_s() for process in self.processes)

    def pss_kib(self):
        return sum(process.pss_kib() for process in self.processes)

    def count_lines(self):
        """Counts what has been logged, and empties the log: it would fill the memory that it is in."""
        if self.log is None or not self.log.exists():
            return
        with self.log.open("rb") as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                self.lines += part.count(b"\n")
        os.truncate(self.log, 0)


def start_anteroom(stack, bench, folder):
    port = lab.free_port()
    more = f"""[session]
mint = true
[limits]
connections_per_address = 20000
[[route]]
match.path = "/everyone/**"
share = "everyone"
[[listen]]
address = "127.0.0.1:{port}"
tls.cert = "{bench.certificate}"
"""
    access = "json" if bench.logs else "off"
    proxy = lab.anteroom(
        bench.binaries["anteroom"], folder, bench.origin_port, bench.core, more=more, access=access
    )
    stack.enter_context(proxy)
    kinds.wait_until_ready(proxy)
    log = proxy.access_log if bench.logs else None
    return Side("anteroom", [proxy], ports(proxy.port, port), log, kinds.log_in(proxy.port))


def start_nginx(stack, bench, folder):
    port = lab.free_port()
    more = f"""listen 127.0.0.1:{port} ssl http2 reuseport backlog=4096;
        ssl_certificate {bench.certificate};
        ssl_certificate_key {bench.certificate};
        location /own/ {kinds.NOT_CACHED_BY_NGINX}"""
    # As many connections to the origin as the others keep: by 16, half of 64 at a time would be new.
    proxy = lab.nginx(
        folder, bench.origin_port, bench.core, more=more, access_log=bench.logs, keepalive=256
    )
    stack.enter_context(proxy)
    return Side("nginx", [proxy], ports(proxy.port, port), folder / "nginx.log" if bench.logs else None)


def start_haproxy(stack, bench, folder):
    port = lab.free_port()
    binds = f"bind 127.0.0.1:{port} ssl crt {bench.certificate} alpn h2,http/1.1"
    cache = MEMORY_MIB, 3_600, 1 << 20
    log = folder / "haproxy.log" if bench.logs else None
    proxy = lab.haproxy(
        folder, bench.origin_port, bench.core, cache=cache, binds=binds, log=log, unless="{ path_beg /own/ }"
    )
    return Side("haproxy", [stack.enter_context(proxy)], ports(proxy.port, port), log)


def start_varnish(stack, bench, folder):
    """Varnish writes its log to shared memory; without a log, nothing is written there, either."""
    port, work, program = lab.free_port(), folder / "work", lab.found("varnishd")
    config = folder / "varnish.vcl"
    config.write_text(
        f"""vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{bench.origin_port}"; }}
sub vcl_recv {{
    unset req.http.Cookie;
    if (req.url ~ "^/own/") {{ return (pass); }}
}}
"""
    )
    parameters = ["default_ttl=300", "thread_pools=1", "timeout_idle=300"]
    if not bench.logs:
        parameters.append(f"vsl_mask={nothing_logged(program)}")
    command = [program, "-F", "-j", "none", "-n", work, "-a", f"127.0.0.1:{port}", "-f", config]
    command += ["-s", f"malloc,{MEMORY_MIB}m", *(f"-p{each}" for each in parameters)]
    proxy = lab.Process("varnish", command, port, bench.core, folder / "said.log")
    processes, log = [stack.enter_context(proxy)], None
    if bench.logs:
        log = folder / "varnish.log"
        command = [lab.need("varnishncsa", "varnish"), "-n", work, "-a", "-w", log]
        writer = lab.Process("varnishncsa", command, None, bench.core, folder / "ncsa-said.log")
        processes.append(stack.enter_context(writer))
    return Side("varnish", processes, {"plain": port, "close": port}, log)


def nothing_logged(program):
    """The vsl_mask of no tag at all."""
    said = subprocess.run([program, "-x", "vsl"], capture_output=True, text=True).stdout
    return ",".join(f"-{tag}" for tag in re.findall(r"^(\w+)\n-+$", said, re.MULTILINE))


def start_ats(stack, bench, folder):
    """Apache Traffic Server does not run as root: its files are then those of the user it was installed with."""
    port, tls_port = lab.free_port(), lab.free_port()
    user = "trafficserver" if os.getuid() == 0 else getpass.getuser()
    layout = write_ats(bench, folder, user, f"{port}:ip-in=127.0.0.1 {tls_port}:ssl:ip-in=127.0.0.1")
    if os.getuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, user)
    command = [lab.found("traffic_server"), f"--run-root={layout}"]
    proxy = lab.Process("ats", command, port, bench.core, folder / "said.log")
    log = folder / "log" / "access.log" if bench.logs else None
    return Side("ats", [stack.enter_context(proxy)], ports(port, tls_port), log)


def write_ats(bench, folder, user, listens):
    """Its configuration; the file that names its folders."""
    for each in ["etc", "log", "run", "var", "cache"]:
        (folder / each).mkdir()
    records = {
        "exec_thread.autoconfig": "INT 0",
        "exec_thread.limit": "INT 1",
        "exec_thread.affinity": "INT 0",
        "accept_threads": "INT 0",
        "task_threads": "INT 1",
        "cache.threads_per_disk": "INT 1",
        "cache.ram_cache.size": f"INT {MEMORY_MIB}M",
        "http.server_ports": f"STRING {listens}",
        "log.logging_enabled": f"INT {2 if bench.logs else 0}",
        "log.max_secs_per_buffer": "INT 1",
        "log.rolling_enabled": "INT 0",
        "admin.user_id": f"STRING {user}",
        "crash_log_helper": "STRING NULL",
    }
    files = {
        "records.config": "".join(f"CONFIG proxy.config.{name} {is_}\n" for name, is_ in records.items()),
        "remap.config": f"map / http://127.0.0.1:{bench.origin_port}/\n",
        "storage.config": f"{folder}/cache {2 * MEMORY_MIB}M\n",
        "ssl_multicert.config": f"dest_ip=* ssl_cert_name={bench.certificate}\n",
        "ip_allow.yaml": "ip_allow: [{apply: in, ip_addrs: 0/0, action: allow, methods: ALL}]\n",
        "cache.config": "url_regex=/own/ action=never-cache\n",
        "plugin.config": "",
        "logging.yaml": """logging:
  formats:
    - name: bench
      format: '%<chi> - %<caun> [%<cqtn>] "%<cqtx>" %<pssc> %<pscl> "%<{Referer}cqh>" "%<{User-Agent}cqh>" %<crc>'
  logs:
    - filename: access
      format: bench
      mode: ascii
""",
    }
    for name, text in files.items():
        (folder / "etc" / name).write_text(text)
    folders = {
        "prefix": folder, "exec_prefix": "/usr", "bindir": "/usr/bin", "sbindir": "/usr/sbin",
        "sysconfdir": folder / "etc", "datadir": "/usr/share/trafficserver", "includedir": "/usr/include",
        "libdir": "/usr/lib/trafficserver", "libexecdir": "/usr/lib/trafficserver/modules",
        "localstatedir": folder / "var", "runtimedir": folder / "run", "logdir": folder / "log",
        "cachedir": folder / "cache",
    }
    layout = folder / "runroot.yaml"
    layout.write_text("".join(f"{name}: {path}\n" for name, path in folders.items()))
    return layout


def start_bare(stack, bench, folder):
    port = lab.free_port()
    command = [bench.binaries["bare"], str(port), str(bench.origin_port)]
    proxy = lab.Process("bare", command, port, bench.core, folder / "said.log")
    return Side("bare", [stack.enter_context(proxy)], {"plain": port, "close": port})


def start_floor(stack, bench, folder):
    port, closing = lab.free_port(), lab.free_port()
    command = [bench.binaries["floor"], str(port), str(closing)]
    proxy = lab.Process("floor", command, port, bench.core, folder / "said.log")
    return Side("floor", [stack.enter_context(proxy)], {"plain": port, "close": closing})


def ports(plain, tls):
    return {"plain": plain, "tls": tls, "close": plain}


# What starts it, the program that it needs and the package that this is in, how the program tells its version,
# and whether it can write an access log.
Peer = collections.namedtuple("Peer", "start program package version logs")

PEERS = {
    "anteroom": Peer(start_anteroom, None, None, "--version", True),
    "nginx": Peer(start_nginx, "nginx", "nginx-light", "-v", True),
    "haproxy": Peer(start_haproxy, "haproxy", "haproxy", "-v", True),
    "varnish": Peer(start_varnish, "varnishd", "varnish", "-V", True),
    "ats": Peer(start_ats, "traffic_server", "trafficserver", "--version", True),
    "bare": Peer(start_bare, "cargo", "Rust (https://rustup.rs)", None, False),
    "floor": Peer(start_floor, "cargo", "Rust (https://rustup.rs)", None, False),
}
DEBIAN = " ".join(peer.package for peer in PEERS.values() if peer.package and " " not in peer.package)


def start(stack, name, bench, folder):
    """The proxy, in a folder of its own."""
    folder.mkdir()
    folder.chmod(0o711)
    return PEERS[name].start(stack, bench, folder)


def installed(names):
    """Those that can run here; for each of the others a line that says what to install."""
    here = [name for name in names if PEERS[name].program is None or lab.found(PEERS[name].program)]
    for name in names:
        if name not in here:
            print(f"{name} is left out: {PEERS[name].program} is missing, install {PEERS[name].package}")
    return here


def build(names, anteroom):
    """The binaries that are built for this, or given, by the name of the proxy."""
    binaries = {}
    if "anteroom" in names:
        binaries["anteroom"] = lab.anteroom_binary(anteroom)
    own = [name for name in names if name in ("bare", "floor")]
    if own:
        subprocess.run(["cargo", "build", "--quiet", "--release", "--locked"], cwd=BARE, check=True)
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", BENCHES.parent / "target"))
        binaries |= {name: target / "release" / name for name in own}
    return binaries


def versions(names, binaries):
    """A line on each that is not of this project alone, and on the load generators."""
    programs = {name: (PEERS[name].program, PEERS[name].version) for name in names if PEERS[name].version}
    programs |= {"wrk": ("wrk", "-v"), "h2load": ("h2load", "--version")}
    lines = []
    for name, (program, option) in programs.items():
        path = lab.found(program) if program else binaries[name]
        if path:
            lines.append(f"{name} {version(path, option)}")
    if "bare" in names:
        number = re.search(r'name = "hyper"\nversion = "(.*)"', (BENCHES.parent / "Cargo.lock").read_text())
        lines.append(f"bare on hyper {number[1]}")
    return lines


def version(path, option):
    """The first number with a point that the program says."""
    said = subprocess.run([path, option], capture_output=True, text=True)
    found = re.search(r"\d+\.[\d.]*\d", said.stdout + said.stderr)
    return found[0] if found else "of unknown version"
