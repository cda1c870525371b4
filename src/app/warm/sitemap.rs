//! Sitemaps (sitemaps.org): the URLs in one, plain or compressed with gzip.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

/// The largest sitemap, in bytes without compression: the limit of the protocol.
pub(super) const SITEMAP_MAX: usize = 50 << 20;
/// The most URLs in one: the limit of the protocol.
const URLS_MAX: usize = 50_000;
/// The longest URL, in bytes: the protocol allows 2,048.
const URL_MAX: usize = 8_192;

/// What a sitemap lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sitemap {
    /// Pages.
    Pages(Vec<String>),
    /// Further sitemaps.
    Index(Vec<String>),
}

/// Why a sitemap cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SitemapError {
    /// The compressed data are damaged.
    #[error("the gzip data are damaged: {0}")]
    Gzip(#[from] std::io::Error),
    /// It is over [`SITEMAP_MAX`].
    #[error(
        "a sitemap has at most 50 MiB without compression; split it, and list the parts in an index"
    )]
    TooLarge,
    /// It lists over [`URLS_MAX`] URLs.
    #[error("a sitemap has at most {URLS_MAX} URLs; split it, and list the parts in an index")]
    TooMany,
    /// It is no XML in UTF-8.
    #[error("it is not XML in UTF-8: {0}")]
    Xml(String),
    /// It is XML of another kind.
    #[error("it has no <urlset> or <sitemapindex>, so it is no sitemap")]
    Other,
}

/// Reads a sitemap.
pub(super) fn read(data: &[u8]) -> Result<Sitemap, SitemapError> {
    if data.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        // A small file may be gigabytes without compression.
        MultiGzDecoder::new(data).take(SITEMAP_MAX as u64 + 1).read_to_end(&mut plain)?;
        return read_plain(&plain);
    }
    read_plain(data)
}

fn read_plain(data: &[u8]) -> Result<Sitemap, SitemapError> {
    if data.len() > SITEMAP_MAX {
        return Err(SitemapError::TooLarge);
    }
    let text = str::from_utf8(data).map_err(|error| SitemapError::Xml(error.to_string()))?;
    let mut reader = Reader::from_str(text);
    let (mut is_index, mut urls, mut path, mut url) = (None, Vec::new(), Vec::new(), None);
    loop {
        let event = reader.read_event().map_err(|error| SitemapError::Xml(error.to_string()))?;
        match event {
            Event::Start(element) => {
                let name = element.local_name().as_ref().to_owned();
                match (path.len(), name.as_str()) {
                    (0, "urlset") => is_index = Some(false),
                    (0, "sitemapindex") => is_index = Some(true),
                    (0, _) => return Err(SitemapError::Other),
                    // <urlset><url><loc>: <image:loc> of an extension lies deeper.
                    (2, "loc") => url = Some(String::new()),
                    _ => {}
                }
                path.push(name);
            }
            Event::End(_) => {
                path.pop();
                if let Some(found) = url.take() {
                    if urls.len() == URLS_MAX {
                        return Err(SitemapError::TooMany);
                    }
                    urls.push(found.trim().to_owned());
                }
            }
            Event::Text(text) => add(&mut url, &text.xml10_content()),
            Event::CData(text) => add(&mut url, &text.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(character)) => add(&mut url, character.encode_utf8(&mut [0; 4])),
                Ok(None) | Err(_) => add(&mut url, resolve_xml_entity(&reference).unwrap_or("")),
            },
            Event::Eof if path.is_empty() => break,
            Event::Eof => return Err(SitemapError::Xml("the end is missing".to_owned())),
            _ => {}
        }
    }
    match is_index {
        Some(true) => Ok(Sitemap::Index(urls)),
        Some(false) => Ok(Sitemap::Pages(urls)),
        None => Err(SitemapError::Other),
    }
}

/// Adds text to the URL that is being read, up to its bound: what is longer is no URL, and its request fails.
fn add(url: &mut Option<String>, text: &str) {
    if let Some(url) = url.as_mut().filter(|url| url.len() + text.len() <= URL_MAX) {
        url.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const PAGES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
                xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
          <!-- all pages -->
          <url><loc> https://shop.test/?a=1&amp;b=&#50; </loc><lastmod>2026-01-01</lastmod>
            <image:image><image:loc>https://shop.test/mug.png</image:loc></image:image></url>
          <url><loc><![CDATA[https://shop.test/b]]></loc></url>
        </urlset>"#;

    fn pages() -> Sitemap {
        let urls = ["https://shop.test/?a=1&b=2", "https://shop.test/b"];
        Sitemap::Pages(urls.map(str::to_owned).to_vec())
    }

    #[test]
    fn the_urls_of_pages_are_read_plain_and_compressed() {
        assert_eq!(read(PAGES.as_bytes()).unwrap(), pages());
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(PAGES.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(read(&gzip).unwrap(), pages());
        assert!(matches!(read(&gzip[..gzip.len() - 9]), Err(SitemapError::Gzip(_))));
    }

    #[test]
    fn an_index_lists_sitemaps() {
        let index =
            "<sitemapindex><sitemap><loc>http://a.test/1.xml</loc></sitemap></sitemapindex>";
        assert_eq!(
            read(index.as_bytes()).unwrap(),
            Sitemap::Index(vec!["http://a.test/1.xml".into()])
        );
    }

    #[test]
    fn what_is_no_sitemap_is_refused() {
        for (text, word) in [
            ("<html><body/></html>", "no sitemap"),
            ("", "no sitemap"),
            ("<urlset><url><loc>http://a.test/", "XML"),
            ("<urlset></url>", "XML"),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(matches!(read(b"\xff\xfe<urlset/>"), Err(SitemapError::Xml(_))));
        let bomb = vec![b' '; SITEMAP_MAX + 1];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bomb).unwrap();
        assert!(matches!(read(&gzip.finish().unwrap()), Err(SitemapError::TooLarge)));
    }

    #[test]
    fn an_entity_of_a_document_is_not_expanded() {
        let text = "<!DOCTYPE urlset [<!ENTITY a 'http://evil.test/'>]>\
                    <urlset><url><loc>http://a.test/&a;</loc></url></urlset>";
        assert_eq!(read(text.as_bytes()).unwrap(), Sitemap::Pages(vec!["http://a.test/".into()]));
    }
}
