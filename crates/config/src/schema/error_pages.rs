//! The form of `[errors] pages`. The files are read with the plan.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anteroom_policy::error_page::{ErrorPage, ErrorPages};
use bytes::Bytes;
use serde_json::Value as Json;

use crate::file::path_at;
use crate::form::{Faults, Form, string};
use crate::node::{Node, Value};
use crate::shape;

/// The largest page, in bytes.
const PAGE_MAX: u64 = 256 << 10;

const EXPECTED: &str = r#"a table such as { 502 = "/etc/anteroom/502.html" }"#;

/// `{ 502 = "/etc/anteroom/502.html" }`
#[derive(Debug)]
pub(super) struct ErrorPagesForm;

impl Form<ErrorPages> for ErrorPagesForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<ErrorPages> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, EXPECTED);
        };
        let read = |(name, node): (&String, &Node)| page(name, node, faults);
        let pages: Vec<Option<ErrorPage>> = table.iter().map(read).collect();
        pages.into_iter().collect::<Option<Vec<_>>>().map(ErrorPages)
    }

    fn write(&self, pages: &ErrorPages) -> Option<String> {
        let pair = |page: &ErrorPage| {
            format!("{} = {}", page.status, string(&page.file.to_string_lossy()))
        };
        let pairs: Vec<String> = pages.0.iter().map(pair).collect();
        Some(format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named(EXPECTED, &shape::text("the path of a file"))
    }
}

fn page(name: &str, node: &Node, faults: &mut Faults<'_>) -> Option<ErrorPage> {
    let status = name.parse::<u16>().ok().filter(|status| (400..=599).contains(status));
    let Some(status) = status else {
        let text = format!("found {}; expected a status from 400 to 599", string(name));
        return faults.add(node, text);
    };
    let Some(path) = node.as_text().filter(|path| !path.is_empty()) else {
        return faults.expected(node, "the path of a file");
    };
    let file = path_at(&node.location, path);
    match read_bounded(&file) {
        Ok(html) => Some(ErrorPage { status, html: Bytes::from(html), file }),
        Err(error) => faults.add(node, format!("cannot read the file {}: {error}", file.display())),
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut html = Vec::new();
    File::open(path)?.take(PAGE_MAX + 1).read_to_end(&mut html)?;
    if html.len() as u64 > PAGE_MAX {
        return Err(io::Error::other(format!("larger than {PAGE_MAX} bytes")));
    }
    Ok(html)
}
