//! Lists of networks and peers, which may lie in files of their own.

use std::path::Path;
use std::sync::Arc;

use anteroom_http::peer::Peers;
use ipnet::IpNet;
use serde_json::Value as Json;

use crate::form::{Fault, Faults, Form, Text, meant_list, string};
use crate::node::{Node, quoted};
use crate::problem::SettingLocation;
use crate::{file, shape, text};

/// The most networks of one key, those in files included.
const NETWORKS_MAX: usize = 10_000;

/// The largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// What precedes the path of a file.
const FILE: &str = "file:";

pub(super) fn networks() -> NetworkList<IpNet> {
    NetworkList(Text { parse: text::network, show: ToString::to_string })
}

pub(super) fn peers() -> NetworkList<Peers> {
    NetworkList(Text { parse: text::peers, show: ToString::to_string })
}

/// The networks that may use a route. An empty list would not say whether it means all or none.
#[derive(Debug)]
pub(super) struct AllowedNetworks(pub(super) NetworkList<IpNet>);

impl Form<Vec<IpNet>> for AllowedNetworks {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<IpNet>> {
        if node.as_list().is_empty() {
            let text = "found an empty list, which names no network that may use the route; write deny = true to refuse \
                        all requests of this route, or leave allow_from out to serve all networks";
            return faults.add(node, text);
        }
        self.0.read(node, faults)
    }

    fn write(&self, networks: &Vec<IpNet>) -> Option<String> {
        self.0.write(networks).filter(|_| !networks.is_empty())
    }

    fn shape(&self) -> Json {
        self.0.shape()
    }
}

/// A list of networks. The entry `file:PATH` stands for the lines of that file, as a CDN publishes them.
#[derive(Debug)]
pub(super) struct NetworkList<T>(Text<T>);

impl<T> Form<Vec<T>> for NetworkList<T> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<T>> {
        let before = faults.found.len();
        let mut networks = Vec::new();
        for entry in node.as_list() {
            match entry.as_text().and_then(|text| text.strip_prefix(FILE)) {
                Some(path) => self.read_file(entry, path, &mut networks, faults),
                None => networks.extend(self.read_entry(entry, faults)),
            }
            if networks.len() > NETWORKS_MAX {
                return faults
                    .add(entry, format!("found more networks; expected at most {NETWORKS_MAX}"));
            }
        }
        if faults.found.len() == before {
            return Some(networks);
        }
        let read =
            |one: &Node, _: &mut Faults<'_>| one.as_text().and_then(|t| (self.0.parse)(t).ok());
        if let Some(list) = meant_list(node, faults, read) {
            faults.found.truncate(before);
            return faults.instead(node, &list);
        }
        None
    }

    fn write(&self, networks: &Vec<T>) -> Option<String> {
        let written: Vec<String> = networks.iter().map(|one| string(&(self.0.show)(one))).collect();
        Some(format!("[{}]", written.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::list(&shape::text(&self.expected("").unwrap_or_default()), NETWORKS_MAX)
    }
}

impl<T> NetworkList<T> {
    fn read_entry(&self, entry: &Node, faults: &mut Faults<'_>) -> Option<T> {
        let Some(text) = entry.as_text() else {
            return faults.expected(entry, "a text in quotes");
        };
        match (self.0.parse)(text) {
            Ok(network) => Some(network),
            Err(_) => faults.expected(entry, &self.expected(text).unwrap_or_default()),
        }
    }

    /// What is expected in the place of a text, if it is no network.
    fn expected(&self, text: &str) -> Option<String> {
        let why = (self.0.parse)(text).err()?;
        Some(format!("{why}, or \"{FILE}\" and the path of a list"))
    }

    /// Adds the networks of a file: one a line, with comments behind a `#`.
    fn read_file(&self, entry: &Node, path: &str, networks: &mut Vec<T>, faults: &mut Faults<'_>) {
        let path: Arc<Path> = file::path_at(&entry.location, path).into();
        let text = match file::read(&path, FILE_MAX) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("cannot read the file {}: {error}", path.display());
                faults.add::<()>(entry, text);
                return;
            }
        };
        let before = (networks.len(), faults.found.len());
        for (line, number) in text.lines().zip(1..) {
            let written = line.split('#').next().unwrap_or_default().trim();
            if written.is_empty() {
                continue;
            }
            match (self.0.parse)(written) {
                Ok(network) => networks.push(network),
                Err(why) => {
                    let place = SettingLocation::Line(Arc::clone(&path), number);
                    let text = format!("found {}; expected {why}, one a line", quoted(written));
                    // One is enough where the file is something else, such as a page with an error.
                    return faults.found.push(Fault { location: place, text, advice: None });
                }
            }
        }
        // An empty list of networks that are served would serve all: a download may have failed.
        if (networks.len(), faults.found.len()) == before {
            let text = format!("the file {} is empty; expected one network a line", path.display());
            faults.add::<()>(entry, text);
        }
    }
}
