//! A proxy in a control group with little memory. Where the machine has no control group that the tests may make, as
//! without root, these tests do nothing: `app::page_memory` has the same on files of its own.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::{holds_within, wait_until, wait_within};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 200 * MIB;
/// The files of the store may be in memory too, and count there.
const STORE: &str = "store.pages = \"1MiB\"";
/// The room grows by some MiB a second.
const GROWTH: Duration = Duration::from_secs(120);

/// A control group; it is removed on Drop, after the processes in it.
struct Cgroup {
    folder: PathBuf,
    usage: &'static str,
}

impl Cgroup {
    /// One with [`LIMIT`]; `name` tells apart those of tests at the same time.
    fn limited(name: &str) -> Option<Self> {
        let name = format!("anteroom-{name}-{}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path_of = |kind: &str| {
            let line = own.lines().find(|line| line.contains(kind))?;
            line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
        };
        // Version 1 has groups within that of the tests; in version 2 no group is both of processes and of groups.
        let one = || {
            let above = Path::new("/sys/fs/cgroup/memory").join(path_of(":memory:")?);
            Self::make(&above.join(&name), "memory.limit_in_bytes", "memory.usage_in_bytes")
        };
        let two = || {
            let folder = Path::new("/sys/fs/cgroup").join(&name);
            Self::make(&folder, "memory.max", "memory.current")
        };
        one().or_else(two)
    }

    fn make(folder: &Path, limit: &str, usage: &'static str) -> Option<Self> {
        fs::create_dir(folder).ok()?;
        let group = Self { folder: folder.to_owned(), usage };
        fs::write(group.folder.join(limit), LIMIT.to_string()).ok()?;
        Some(group)
    }

    /// A line of a shell that puts the shell into the group.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.folder.display())
    }

    /// What is used, without cached files that the kernel takes back by itself.
    fn used(&self) -> u64 {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap();
        let stat = read("memory.stat");
        let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name));
        let inactive = value("total_inactive_file ").or_else(|| value("inactive_file ")).unwrap();
        let used: u64 = read(self.usage).trim().parse().unwrap();
        used.saturating_sub(inactive.trim().parse().unwrap())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        holds_within(Duration::from_secs(5), || fs::remove_dir(&self.folder).is_ok());
    }
}

/// A process that takes memory beside the proxy.
struct Neighbour(Child);

impl Neighbour {
    fn within(group: &Cgroup) -> Self {
        // It keeps what it reads until the end.
        let line = format!("{}; exec tail -c 1000000000", group.enter());
        let mut command = Command::new("sh");
        let command = command.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn take(&mut self, bytes: u64) {
        let input = self.0.stdin.as_mut().unwrap();
        input.write_all(&vec![b'x'; usize::try_from(bytes).unwrap()]).unwrap();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An app with pages of 130 KB.
fn app() -> Origin {
    let page = "x".repeat(130_000);
    Origin::start(move |_| Reply::html(&page))
}

/// Asks for so many pages.
fn fill(proxy: &Proxy, count: u32) {
    let mut client = proxy.connect();
    for number in 0..count {
        assert_eq!(proxy.get(&format!("/{number}")).send_on(&mut client).status, 200, "{number}");
    }
}

fn room(proxy: &Proxy) -> u64 {
    proxy.metric("anteroom_memory_pages_max_bytes") as u64
}

#[test]
fn pages_have_two_fifths_of_the_limit_and_less_while_others_need_it() {
    let Some(group) = Cgroup::limited("auto") else { return };
    let origin = app();
    let proxy = Proxy::behind_with(&group.enter(), &origin, STORE);
    proxy.wait_for_complaint("pages in memory have 80MiB: the process is limited to 200MiB (/sys/");
    assert_eq!(room(&proxy), 80 * MIB);
    fill(&proxy, 800);
    assert!(proxy.metric("anteroom_memory_pages_bytes") as u64 > 70 * MIB);

    let mut neighbour = Neighbour::within(&group);
    let is_short = || proxy.metric("anteroom_memory_pages_reduced_total") >= 1.0;
    // No further than that: the allocator takes ten seconds to give back what each step costs.
    for _ in 0..12 {
        if is_short() {
            break;
        }
        neighbour.take(8 * MIB);
        let has_room = || group.used() < LIMIT / 10 * 9 + MIB;
        wait_within(GROWTH, "the group has room", || is_short() || has_room());
    }
    assert!(is_short());
    proxy.wait_for_complaint("memory is short");
    assert_eq!(proxy.get("/").send().status, 200);

    drop(neighbour);
    wait_within(GROWTH, "pages have their room again", || room(&proxy) == 80 * MIB);
    proxy.wait_for_complaint("memory is not short any more");
}

#[test]
fn a_number_over_the_limit_is_warned_of_and_does_not_end_the_process() {
    let Some(group) = Cgroup::limited("number") else { return };
    let origin = app();
    let settings = format!("cache.memory = \"256MiB\"\n{STORE}");
    let proxy = Proxy::behind_with(&group.enter(), &origin, &settings);
    let warning = "256MiB is too much for a process whose memory is limited to 200MiB";
    proxy.wait_for_complaint(warning);
    fill(&proxy, 1_800);
    assert!(room(&proxy) < LIMIT / 10 * 9, "{}", room(&proxy));
    wait_until("the last page is a hit", || {
        proxy.get("/1799").send();
        proxy.get("/1799").send().is_hit()
    });

    let line = format!("{}; exec \"$0\" check --config proxy.toml", group.enter());
    let mut check = Command::new("sh");
    let check = check.args(["-c", &line]).arg(anteroom().get_program());
    let output = check.current_dir(proxy.folder()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains(warning), "{said}");
    assert!(said.contains("write \"auto\", or at most \"80MiB\""), "{said}");
}
