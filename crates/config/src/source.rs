//! The sources of settings: the file, the environment and the command line. Each overrides the one before
//! it.
//!
//! The reader and the forms interpret the settings.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::key_paths::KeyPaths;
use super::node::{Node, TomlTable, Value, lay_over, parse_file, without_password};
use super::plan::{self, OriginUrl, Plan};
use super::problem::{Problem, SettingLocation, Warning};
use super::{file, include, shorthand};

/// The prefix of variables that contain a setting: `ANTEROOM__CACHE__DEFAULT_TTL=60s`.
const PREFIX: &str = "ANTEROOM__";
/// The file that is read when none is named.
const USUAL_FILE: &str = "proxy.toml";
/// The deepest nesting of a variable: section, key, and `FILE` or `ENV` of a secret.
const DEPTH_MAX: usize = 3;

/// All sources. `Debug` leaves out the environment and the content of the file, which may contain
/// passwords.
#[derive(Clone, Default)]
pub struct ConfigSources {
    /// The file and its content.
    pub file: Option<(PathBuf, String)>,
    /// The environment: `ANTEROOM__SECTION__KEY`, and the variables that hold secrets.
    pub env: Vec<(String, String)>,
    /// The command line.
    pub overrides: Overrides,
}

/// The settings that the command line accepts. They override all other sources.
#[derive(Clone, Default, clap::Args)]
pub struct Overrides {
    /// Serve clients at this address and port; repeat for more
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// The app behind the proxy, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL")]
    pub origin: Option<String>,
    /// Where sessions and pages are kept: embedded:DIR, redis://HOST, rediss://HOST,
    /// redis+unix:PATH
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Serve health, metrics and administration at this address and port, or "off"
    #[arg(long, value_name = "ADDR|off")]
    pub admin: Option<String>,
    /// Threads that serve clients, instead of one for each core
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
}

/// All sources as one tree.
#[derive(Debug, Default)]
pub(super) struct MergedSources {
    pub(super) tree: TomlTable,
    /// Problems with the names of variables, and keys that two files set.
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Warning>,
}

impl ConfigSources {
    /// Reads the file, if one is named, and the environment of this process.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8 or is larger than 1 MiB.
    pub fn gather(file: Option<&Path>, overrides: Overrides) -> Result<Self, Problem> {
        let file = match file {
            None => None,
            Some(path) => Some((path.to_owned(), read_file(path)?)),
        };
        // Invalid UTF-8 is replaced, so that a setting with such a value is reported like any other
        // invalid one.
        let env = std::env::vars_os()
            .map(|(name, text)| {
                (name.to_string_lossy().into_owned(), text.to_string_lossy().into_owned())
            })
            .collect();
        Ok(Self { file, env, overrides })
    }

    /// The file to read when none is named: `./proxy.toml`, if it is there.
    #[must_use]
    pub fn usual_file() -> Option<PathBuf> {
        Some(PathBuf::from(USUAL_FILE)).filter(|path| path.is_file())
    }

    /// The plan before any setting is read. Without an origin it is never returned.
    pub(super) fn defaults(&self) -> Plan {
        let mut plan = Plan::new(OriginUrl::http("", 80));
        if let Some((path, _)) = &self.file {
            plan.keep_data_in(&file::beside(path, Path::new(plan::DATA)));
        }
        plan
    }

    /// The place of a setting that was not written.
    pub(super) fn whole(&self) -> SettingLocation {
        self.file.as_ref().map_or(SettingLocation::Nowhere, |(path, _)| {
            SettingLocation::File(path.as_path().into())
        })
    }

    /// All sources merged.
    ///
    /// # Errors
    /// Each place where a file is not TOML, and each included file that cannot be read.
    pub(super) fn merged(&self) -> Result<MergedSources, Vec<Problem>> {
        let mut merged = MergedSources::default();
        if let Some((path, text)) = &self.file {
            merged.tree = parse_file(path, text)?;
            // Before the other sources, so that each of them may replace a single key.
            shorthand::write_out(&mut merged.tree);
            let (problems, warnings) = include::read(&mut merged.tree, path)?;
            merged.problems.extend(problems);
            merged.warnings.extend(warnings);
        }
        let problems = self.lay_environment(&mut merged.tree);
        merged.problems.extend(problems);
        self.overrides.lay(&mut merged.tree);
        shorthand::write_out(&mut merged.tree);
        Ok(merged)
    }

    /// Warnings of variables that look like settings and are none: `ANTEROOM_ORIGIN_URL`. A variable that a
    /// secret in `tree` names is what it should be.
    pub(super) fn ignored_variables(&self, tree: &TomlTable) -> Vec<Warning> {
        let mut paths = None;
        let mut warnings = Vec::new();
        for (name, _) in &self.env {
            let Some(rest) = name.strip_prefix("ANTEROOM_").filter(|rest| !rest.starts_with('_'))
            else {
                continue;
            };
            let paths = paths.get_or_insert_with(KeyPaths::of_schema);
            let Some(path) = paths.by_variable(rest).filter(|_| !names_variable(tree, name)) else {
                continue;
            };
            let setting = path.to_ascii_uppercase().replace('.', "__");
            let text = format!("is ignored; for {path} write {PREFIX}{setting}");
            let place = SettingLocation::Variable(name.clone());
            warnings.push(Warning { problem: Problem::new(place, "", text), fails_check: false });
        }
        warnings
    }

    fn lay_environment(&self, tree: &mut TomlTable) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut settings: Vec<(&str, &str, &str)> = self
            .env
            .iter()
            .filter_map(|(name, text)| {
                Some((name.strip_prefix(PREFIX)?, name.as_str(), text.as_str()))
            })
            .collect();
        // The variable of a section precedes those of its keys, in whatever order the system lists them.
        settings.sort_unstable();
        for (key, name, text) in settings {
            let key = key.to_ascii_lowercase();
            let path: Vec<&str> = key.split("__").collect();
            if path.len() > DEPTH_MAX {
                let place = SettingLocation::Variable(name.to_owned());
                problems.push(Problem::new(place, "", "unknown key; write ANTEROOM__SECTION__KEY"));
                continue;
            }
            let node = Node::from_variable(name, text);
            // A bare value replaces one key, and not the rest of the table.
            match shorthand::key_of(&path).filter(|_| node.as_text().is_some()) {
                Some(key) => lay_over(tree, &[path[0], key], node),
                None => lay_over(tree, &path, node),
            }
        }
        problems
    }
}

impl Overrides {
    fn lay(&self, tree: &mut TomlTable) {
        let single = [
            ("--origin", &self.origin, &["origin", "url"][..]),
            ("--store", &self.store, &["store", "url"]),
            ("--admin", &self.admin, &["admin", "address"]),
            ("--threads", &self.threads, &["threads"]),
        ];
        for (flag, said, path) in single {
            if let Some(text) = said {
                lay_over(tree, path, Node::text(SettingLocation::Flag(flag), text));
            }
        }
        if self.listen.is_empty() {
            return;
        }
        let place = SettingLocation::Flag("--listen");
        let listen = |address: &String| {
            let address = Node::text(place.clone(), address);
            Node::table(place.clone(), TomlTable::from([("address".to_owned(), address)]))
        };
        let all = Node::list(place.clone(), self.listen.iter().map(listen).collect());
        lay_over(tree, &["listen"], all);
    }
}

impl fmt::Debug for ConfigSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file.as_ref().map(|(path, _)| path))
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides")
            .field("listen", &self.listen)
            .field("origin", &self.origin)
            .field("store", &self.store.as_deref().map(without_password))
            .field("admin", &self.admin)
            .field("threads", &self.threads)
            .finish()
    }
}

/// Whether a secret anywhere in the tree is read from this variable.
fn names_variable(tree: &TomlTable, variable: &str) -> bool {
    tree.iter().any(|(key, node)| {
        (key == "env" && node.as_text() == Some(variable)) || is_within(node, variable)
    })
}

fn is_within(node: &Node, variable: &str) -> bool {
    match &node.value {
        Value::Table(table) => names_variable(table, variable),
        Value::List(nodes) => nodes.iter().any(|node| is_within(node, variable)),
        _ => false,
    }
}

pub(super) fn read_file(path: &Path) -> Result<String, Problem> {
    let place = SettingLocation::File(path.into());
    let text = file::read(path, include::FILE_MAX);
    text.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::InvalidData => "; save it in the encoding UTF-8",
            _ => "",
        };
        Problem::new(place, "", format!("cannot be read: {error}{hint}"))
    })
}
