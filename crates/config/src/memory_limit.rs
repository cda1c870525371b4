//! How much memory this process may use, and how much of it is used: control groups (version 2 and 1), and the
//! machine. What `[cache] memory = "auto"` is follows from it.
//!
//! The kernel kills a process of a group that is over its limit. A limit counts what all processes in the group and
//! below it use, so each group above this process is read.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// A larger limit is none: version 1 says "no limit" by the largest number of pages.
const LARGEST: u64 = 1 << 60;

/// A limit on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The file that says it.
    pub file: PathBuf,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}MiB ({})", self.bytes / MIB, self.file.display())
    }
}

/// The smallest limit on this process: that of a control group, or the memory of the machine. `None` if the system
/// tells of neither.
#[must_use]
pub fn smallest_memory_limit() -> Option<MemoryLimit> {
    smallest_under(Path::new("/"))
}

fn smallest_under(root: &Path) -> Option<MemoryLimit> {
    let groups = Cgroups::under(root);
    groups.limits().chain(machine(root)).min_by_key(|limit| limit.bytes)
}

/// The memory of the machine, as `/proc/meminfo` says.
fn machine(root: &Path) -> Option<MemoryLimit> {
    let file = root.join("proc/meminfo");
    let text = fs::read_to_string(&file).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let bytes = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    Some(MemoryLimit { bytes, file })
}

/// What the processes of a control group use, beside its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that the kernel cannot take back without a kill: without files that it only keeps in its cache.
    pub used: u64,
    /// The limit of the group.
    pub limit: MemoryLimit,
}

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The files that hold a limit. `memory.high` does not kill, but slows the processes down.
    fn limits(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            Self::Two => &["memory.max", "memory.high"],
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// The line of `memory.stat` for cached files that were not used lately, in the group and below it.
    fn inactive(self) -> &'static str {
        match self {
            Self::One => "total_inactive_file ",
            Self::Two => "inactive_file ",
        }
    }
}

/// A control group: its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cgroup {
    version: Version,
    folder: PathBuf,
}

impl Cgroup {
    fn limit(&self) -> Option<MemoryLimit> {
        let limits = self.version.limits().iter().filter_map(|name| {
            let file = self.folder.join(name);
            // "max" is no number, and no limit.
            let bytes = number(&file).filter(|bytes| *bytes < LARGEST)?;
            Some(MemoryLimit { bytes, file })
        });
        limits.min_by_key(|limit| limit.bytes)
    }

    fn usage(&self) -> Option<MemoryUse> {
        let limit = self.limit()?;
        let all = number(&self.folder.join(self.version.usage()))?;
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let inactive = stat.lines().find_map(|line| line.strip_prefix(self.version.inactive()));
        let inactive = inactive.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(MemoryUse { used: all.saturating_sub(inactive), limit })
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The control groups that this process is in, up to the roots of their hierarchies.
#[derive(Clone, Debug)]
pub struct Cgroups(Vec<Cgroup>);

impl Cgroups {
    /// Those of this process. A process that is moved later is not followed.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::under(Path::new("/"))
    }

    /// The same of a system whose files are below `root`.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let (mounts, own) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
        let mut groups = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let Some(path) = own.lines().find_map(|line| mount.path_in(line)) else { continue };
            let top = root.join(mount.point.trim_start_matches('/'));
            let folder = top.join(path);
            let above = folder.ancestors().take_while(|folder| folder.starts_with(&top));
            groups.extend(
                above.map(|folder| Cgroup { version: mount.version, folder: folder.to_owned() }),
            );
        }
        Self(groups)
    }

    fn limits(&self) -> impl Iterator<Item = MemoryLimit> {
        self.0.iter().filter_map(Cgroup::limit)
    }

    /// Whether any of them has a limit now.
    #[must_use]
    pub fn have_limit(&self) -> bool {
        self.limits().next().is_some()
    }

    /// What is used in the group that has the least room left; `None` if none has a limit. Limits are read anew, since
    /// they can be changed under a running process.
    #[must_use]
    pub fn tightest(&self) -> Option<MemoryUse> {
        let room =
            |group: &MemoryUse| i128::from(group.limit.bytes / 10 * 9) - i128::from(group.used);
        self.0.iter().filter_map(Cgroup::usage).min_by_key(room)
    }
}

/// A mounted hierarchy that may limit memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mount<'a> {
    version: Version,
    /// The group that is seen at `point`.
    root: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    /// Reads a line of `/proc/self/mountinfo`: number, number, device, root, place, options, optional fields, `-`,
    /// type, source, options of the type.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", Some(options)) if options.split(',').any(|it| it == "memory") => {
                Version::One
            }
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        Some(Self { version, root, point })
    }

    /// Where below the mount this process is, by a line of `/proc/self/cgroup` (`4:memory:/a/b`, `0::/a/b`); `None`
    /// if the line is of another hierarchy. A container may see its own group as the root of the mount, under a path
    /// that leads elsewhere: then it is the root.
    fn path_in(&self, line: &'a str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_same = match self.version {
            Version::One => controllers.split(',').any(|it| it == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        if !is_same {
            return None;
        }
        let below = Path::new(path).strip_prefix(self.root).ok().and_then(Path::to_str);
        Some(below.filter(|path| !path.split('/').any(|part| part == "..")).unwrap_or(""))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB_200: &str = "209715200\n";
    const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      37 31 0:34 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().unwrap();
        for (file, text) in files {
            write(&folder, file, text);
        }
        folder
    }

    fn write(root: &TempDir, file: &str, text: &str) {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn found(root: &TempDir) -> Option<(u64, String)> {
        smallest_under(root.path()).map(|limit| {
            let file = limit.file.strip_prefix(root.path()).unwrap();
            (limit.bytes, file.to_str().unwrap().to_owned())
        })
    }

    #[test]
    fn every_group_above_counts() {
        let root = system(&[
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/shop.slice/anteroom.service\n"),
            ("proc/meminfo", "MemTotal:       24684484 kB\nMemFree:        1 kB\n"),
            ("sys/fs/cgroup/shop.slice/memory.max", MIB_200),
            ("sys/fs/cgroup/shop.slice/memory.high", "max\n"),
            ("sys/fs/cgroup/shop.slice/anteroom.service/memory.max", "max\n"),
            ("sys/fs/cgroup/shop.slice/anteroom.service/memory.high", "max\n"),
        ]);
        let of_slice = || "sys/fs/cgroup/shop.slice/memory.max".to_owned();
        assert_eq!(found(&root), Some((200 * MIB, of_slice())));
        write(&root, "sys/fs/cgroup/shop.slice/anteroom.service/memory.high", "104857600");
        let of_service = "sys/fs/cgroup/shop.slice/anteroom.service/memory.high";
        assert_eq!(found(&root), Some((100 * MIB, of_service.to_owned())));
        write(&root, "proc/meminfo", "MemTotal:          65536 kB\n");
        assert_eq!(found(&root), Some((64 * MIB, "proc/meminfo".to_owned())));
    }

    #[test]
    fn a_system_without_limits_has_the_memory_of_the_machine() {
        let root = system(&[
            ("proc/self/mountinfo", V1),
            ("proc/self/cgroup", "4:memory:/\n0::/\n"),
            ("proc/meminfo", "MemTotal: 1024 kB\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(found(&root), Some((MIB, "proc/meminfo".to_owned())));
        assert!(!Cgroups::under(root.path()).have_limit());
        assert_eq!(Cgroups::under(root.path()).tightest(), None);
        assert_eq!(found(&system(&[])), None);
        assert_eq!(found(&system(&[("proc/meminfo", "MemTotal: many\n")])), None);
    }

    #[test]
    fn version_one_beside_an_empty_version_two_is_read() {
        let group = "sys/fs/cgroup/memory/docker/ab12";
        let root = system(&[
            ("proc/self/mountinfo", V1),
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/ab12\n0::/\n"),
            (&format!("{group}/memory.limit_in_bytes"), MIB_200),
            (&format!("{group}/memory.usage_in_bytes"), "1000\n"),
            (&format!("{group}/memory.stat"), "inactive_file 7\ntotal_inactive_file 300\n"),
        ]);
        let used = Cgroups::under(root.path()).tightest().unwrap();
        assert_eq!((used.used, used.limit.bytes), (700, 200 * MIB));
    }

    #[test]
    fn a_container_finds_its_group_at_the_root_of_the_mount() {
        // Version 1 without a namespace: the mount shows the group itself. Version 2: the group is above the namespace.
        let mounted = "9 8 0:1 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        for (mounts, own, file) in [
            (mounted, "4:memory:/docker/ab12", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
            (mounted, "4:memory:/elsewhere", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
            (V2, "0::/", "sys/fs/cgroup/memory.max"),
            (V2, "0::/../other", "sys/fs/cgroup/memory.max"),
        ] {
            let root = system(&[
                ("proc/self/mountinfo", mounts),
                ("proc/self/cgroup", own),
                (file, MIB_200),
            ]);
            assert_eq!(found(&root), Some((200 * MIB, file.to_owned())), "{own}");
        }
    }

    #[test]
    fn the_group_with_the_least_room_is_the_one_that_counts() {
        let (slice, service) = ("sys/fs/cgroup/a", "sys/fs/cgroup/a/b");
        let root = system(&[
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/a/b\n"),
            (&format!("{slice}/memory.max"), "1000000000"),
            (&format!("{slice}/memory.current"), "500000000"),
            (&format!("{slice}/memory.stat"), "anon 4\ninactive_file 100000000\n"),
            (&format!("{service}/memory.max"), "100000000"),
            (&format!("{service}/memory.current"), "60000000"),
        ]);
        let tightest = || Cgroups::under(root.path()).tightest().unwrap();
        assert_eq!((tightest().used, tightest().limit.bytes), (60_000_000, 100_000_000));
        // Others in the slice take what this one may.
        write(&root, &format!("{slice}/memory.current"), "990000000");
        assert_eq!((tightest().used, tightest().limit.bytes), (890_000_000, 1_000_000_000));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in ["", "-", "1 2 3 / /x rw", "1 2 3 - cgroup2", "1 2 3 / - cgroup2 a b"] {
            assert_eq!(Mount::parse(line), None, "{line}");
        }
        let mount = Mount { version: Version::Two, root: "/", point: "/x" };
        for line in ["", "0:", "0", "1:name=systemd:/a", "4:memory:/b"] {
            assert_eq!(mount.path_in(line), None, "{line}");
        }
    }
}
