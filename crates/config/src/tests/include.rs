//! Settings in several files.

use std::fs;

use tempfile::TempDir;

use super::told;
use crate::{AdminSocket, ConfigSources, Overrides, Plan, Warning, print};

/// A folder with these files, of which the first is the one that is named.
struct Files {
    folder: TempDir,
    first: &'static str,
}

fn files(files: &[(&'static str, &str)]) -> Files {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Files { folder, first: files[0].0 }
}

impl Files {
    fn read(&self) -> Result<(Plan, Vec<Warning>), Vec<String>> {
        let path = self.folder.path().join(self.first);
        let sources = ConfigSources::gather(Some(&path), Overrides::default()).unwrap();
        let sources = ConfigSources { env: Vec::new(), ..sources };
        Plan::read(&sources).map_err(|problems| {
            told(&problems).iter().map(|line| self.without_folder(line)).collect()
        })
    }

    fn without_folder(&self, line: &str) -> String {
        line.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

const ORIGIN: &str = "origin = { url = \"http://app\", hosts = \"a.test\" }\n";

#[test]
fn settings_of_included_files_join_those_of_the_file_in_the_order_of_names() {
    let files = files(&[
        (
            "proxy.toml",
            &format!(
                "include = [\"conf.d/*.toml\", \"own.toml\"]\n{ORIGIN}listen = \":81\"\n[[route]]\nmatch = \"/first\"\n"
            ),
        ),
        (
            "conf.d/b.toml",
            "listen = [\":83\"]\n[[route]]\nmatch = \"/b\"\norigin = \"blog\"\n[cache]\nmemory = \"50MiB\"\n",
        ),
        (
            "conf.d/B.toml",
            "[origins.blog]\nurl = \"http://blog\"\n[[listen]]\naddress = \":82\"\n[cache]\ntrust_public = true\n[[route]]\nmatch = \"/B\"\n[[route]]\nmatch = \"/B2\"\n",
        ),
        ("conf.d/.hidden.toml", "nonsense"),
        ("conf.d/notes.txt", "nonsense"),
        ("conf.d/folder.toml/a.toml", "nonsense"),
        (
            "own.toml",
            "[origins.blog]\nkeep_idle = 7\n[[cookies]]\nname = \"a\"\n[[rows]]\nname = \"r\"\npath = \"/{row}\"\n",
        ),
    ]);
    let (plan, warnings) = files.read().unwrap();
    assert_eq!(warnings, []);
    let names: Vec<&str> = plan.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["/first", "/B", "/B2", "/b"]);
    let ports: Vec<u16> = plan.listen.iter().map(|one| one.address.tcp().unwrap().port()).collect();
    assert_eq!(ports, [81, 82, 83]);
    assert_eq!((plan.cache.memory, plan.cache.trust_public), (Some(50 << 20), true));
    let [(name, blog)] = plan.origins.as_slice() else { panic!("{:?}", plan.origins) };
    assert_eq!((name.as_str(), blog.url.host.as_str(), blog.keep_idle), ("blog", "blog", 7));
    assert_eq!((plan.cookies.len(), plan.rows.len()), (1, 1));
    let written = print(&plan);
    assert!(!written.contains("include") && written.contains("[origins.blog]"), "{written}");
}

#[test]
fn a_key_that_two_files_set_is_told_with_both_places() {
    let files = files(&[
        (
            "proxy.toml",
            &format!(
                "include = \"conf.d/*\"\n{ORIGIN}[cache]\nmemory = \"500MiB\"\n[admin]\ntoken.env = \"A\"\n"
            ),
        ),
        (
            "conf.d/a.toml",
            "[cache]\nmemory = \"600MiB\"\n[origins.x]\nurl = \"http://x\"\nsecret.env = \"A\"\n",
        ),
        (
            "conf.d/b.toml",
            "admin = { token.file = \"t\" }\norigin = \"http://b\"\ncache.memori = 1\n\n[origins.x]\nsecret.file = \"B\"",
        ),
    ]);
    let problems = files.read().unwrap_err();
    let expected = [
        "conf.d/a.toml:2: [cache] memory: is already set at proxy.toml:4; remove one of the two",
        "conf.d/a.toml:5: [origins] x.secret: the environment variable A is not set",
        "conf.d/b.toml:1: [admin] token: is already set at proxy.toml:6; remove one of the two",
        "conf.d/b.toml:2: [origin] url: is already set at proxy.toml:2; remove one of the two",
        "conf.d/b.toml:3: [cache] memori: unknown key; did you mean memory?",
        "conf.d/b.toml:6: [origins] x.secret: is already set at conf.d/a.toml:5; remove one of the two",
        "proxy.toml:6: [admin] token: the environment variable A is not set",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_pattern_may_match_nothing_and_a_name_may_not() {
    let of = |include: &str| files(&[("proxy.toml", &format!("include = {include}\n{ORIGIN}"))]);
    let files = of("\"conf.d/*.toml\"");
    let (_, warnings) = files.read().unwrap();
    let told: Vec<String> =
        warnings.iter().map(|one| files.without_folder(&one.to_string())).collect();
    assert_eq!(told, ["proxy.toml:1: include: conf.d/*.toml matches no file"]);
    assert!(warnings.iter().all(|one| !one.fails_check));
    // The file itself is read already.
    assert!(of("\"*.toml\"").read().is_ok() && of("[]").read().is_ok());
    for (include, expected) in [
        ("\"a.toml\"", "the file a.toml cannot be read: No such file or directory (os error 2)"),
        ("[\"/etc/\"]", "/etc/ is a folder; write \"/etc/*.toml\""),
        (
            "\"a***\"",
            "\"a***\" is no pattern of files (wildcards are either regular `*` or recursive `**`); write \"conf.d/*.toml\"",
        ),
        ("[7]", "found 7; expected the path of a file, or a pattern such as \"conf.d/*.toml\""),
        ("\"\"", "found \"\"; expected the path of a file, or a pattern such as \"conf.d/*.toml\""),
    ] {
        let problems = of(include).read().unwrap_err();
        assert_eq!(problems, [format!("proxy.toml:1: include: {expected}")], "{include}");
    }
}

#[test]
fn each_included_file_is_told_by_its_own_name_and_line() {
    let files = files(&[
        ("proxy.toml", &format!("include = [\"a.toml\", \"b.toml\", \"c.toml\"]\n{ORIGIN}")),
        ("a.toml", "\n[cache\n"),
        ("b.toml", "include = \"d.toml\"\n"),
        ("c.toml", "threads = \"many\""),
    ]);
    let problems = files.read().unwrap_err();
    assert!(problems[0].starts_with("a.toml:2: not TOML: "), "{problems:?}");
    let expected = "b.toml:1: include: an included file cannot include others; name them in the \
                    file that is read first";
    assert_eq!(problems[1..], [expected]);
    fs::write(files.folder.path().join("a.toml"), "").unwrap();
    fs::write(files.folder.path().join("b.toml"), "").unwrap();
    let problems = files.read().unwrap_err();
    assert_eq!(problems, ["c.toml:1: threads: found \"many\"; expected a number from 1 to 512"]);
}

#[test]
fn the_socket_of_the_commands_may_be_named_in_an_included_file() {
    let files = files(&[
        ("proxy.toml", "include = \"a.toml\"\n"),
        ("a.toml", "admin.socket = \"/run/a.sock\"\n[origin]\nsecret.file = \"none\""),
    ]);
    let path = files.folder.path().join("proxy.toml");
    let sources = ConfigSources::gather(Some(&path), Overrides::default()).unwrap();
    assert_eq!(Plan::socket(&sources), Ok(AdminSocket::At("/run/a.sock".into())));
}

#[test]
fn include_is_a_key_for_files() {
    let mut sources = super::file(ORIGIN);
    sources.env = super::variables(&[("ANTEROOM__INCLUDE", "a.toml")]);
    let expected = "ANTEROOM__INCLUDE: include: is a key for files; name the file with --config";
    assert_eq!(super::problems(&sources), [expected]);
}
