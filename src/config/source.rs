//! Where settings come from: the file, then the environment, then the command line, each over
//! the one before.
//!
//! What the settings mean is the business of the reader and the forms.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::node::{Node, Table, lay_over, parse_file, without_password};
use super::problem::{Place, Problem};

/// What a variable that holds a setting begins with: `ANTEROOM__CACHE__DEFAULT_TTL=60s`.
const PREFIX: &str = "ANTEROOM__";
/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// The deepest that a variable reaches: section, key, and `FILE` or `ENV` of a secret.
const DEPTH_MAX: usize = 3;

/// Everything that was said before defaults. `Debug` shows neither the environment nor what the
/// file holds: there may be passwords in them.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file, and what it holds.
    pub file: Option<(PathBuf, String)>,
    /// The environment: `ANTEROOM__SECTION__KEY`, and the variables that hold secrets.
    pub env: Vec<(String, String)>,
    /// The command line.
    pub overrides: Overrides,
}

/// The settings that can be given on the command line. They win over all else.
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

impl Sources {
    /// Reads the file, if one is named, and this process's environment.
    ///
    /// # Errors
    /// When the file cannot be read, is not UTF-8 or is over 1 MiB.
    pub fn gather(file: Option<&Path>, overrides: Overrides) -> Result<Self, Problem> {
        let file = match file {
            None => None,
            Some(path) => Some((path.to_owned(), read_file(path)?)),
        };
        // What is not UTF-8 is taken as near as can be: a setting among it is then told as a
        // problem, like any other that makes no sense.
        let env = std::env::vars_os()
            .map(|(name, text)| {
                (name.to_string_lossy().into_owned(), text.to_string_lossy().into_owned())
            })
            .collect();
        Ok(Self { file, env, overrides })
    }

    /// The place of a setting that was said nowhere.
    pub(super) fn whole(&self) -> Place {
        self.file.as_ref().map_or(Place::Nowhere, |(path, _)| Place::File(path.as_path().into()))
    }

    /// All that was said, in one tree, and the variables that can be no setting.
    ///
    /// # Errors
    /// Where the file is not TOML: each place.
    pub(super) fn tree(&self) -> Result<(Table, Vec<Problem>), Vec<Problem>> {
        let mut tree = match &self.file {
            None => Table::new(),
            Some((path, text)) => parse_file(path, text)?,
        };
        let problems = self.lay_environment(&mut tree);
        self.overrides.lay(&mut tree);
        Ok((tree, problems))
    }

    fn lay_environment(&self, tree: &mut Table) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut settings: Vec<(&str, &str, &str)> = self
            .env
            .iter()
            .filter_map(|(name, text)| {
                Some((name.strip_prefix(PREFIX)?, name.as_str(), text.as_str()))
            })
            .collect();
        // A section's own variable comes before those of its keys, whatever the order in which
        // the system lists them.
        settings.sort_unstable();
        for (key, name, text) in settings {
            let key = key.to_ascii_lowercase();
            let path: Vec<&str> = key.split("__").collect();
            if path.len() > DEPTH_MAX {
                let place = Place::Variable(name.to_owned());
                problems.push(Problem::new(place, "", "unknown key; write ANTEROOM__SECTION__KEY"));
                continue;
            }
            lay_over(tree, &path, Node::from_variable(name, text));
        }
        problems
    }
}

impl Overrides {
    fn lay(&self, tree: &mut Table) {
        let single = [
            ("--origin", &self.origin, &["origin", "url"][..]),
            ("--store", &self.store, &["store", "url"]),
            ("--admin", &self.admin, &["admin", "address"]),
            ("--threads", &self.threads, &["threads"]),
        ];
        for (flag, said, path) in single {
            if let Some(text) = said {
                lay_over(tree, path, Node::text(Place::Flag(flag), text));
            }
        }
        if self.listen.is_empty() {
            return;
        }
        let place = Place::Flag("--listen");
        let listen = |address: &String| {
            let address = Node::text(place.clone(), address);
            Node::table(place.clone(), Table::from([("address".to_owned(), address)]))
        };
        let all = Node::list(place.clone(), self.listen.iter().map(listen).collect());
        lay_over(tree, &["listen"], all);
    }
}

impl fmt::Debug for Sources {
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

fn read_file(path: &Path) -> Result<String, Problem> {
    let place = Place::File(path.into());
    read_bounded(path).map_err(|error| Problem::new(place, "", format!("cannot be read: {error}")))
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("over {FILE_MAX} bytes")));
    }
    Ok(text)
}
