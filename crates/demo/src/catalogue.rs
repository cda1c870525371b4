//! The goods of the demo shop, and its static files. The only logic is look-ups.

/// One item. Its page is `/item/<slug>`.
#[derive(Debug)]
pub(super) struct CatalogueItem {
    /// The name in paths: lower-case letters and hyphens.
    pub(super) slug: &'static str,
    /// The name that the page shows.
    pub(super) name: &'static str,
    /// The price in euro cents.
    pub(super) cents: u32,
    /// One sentence about it.
    pub(super) about: &'static str,
}

/// Finds the item with this slug.
pub(super) fn item(slug: &str) -> Option<&'static CatalogueItem> {
    ITEMS.iter().find(|item| item.slug == slug)
}

/// One static file below `/static/`.
#[derive(Debug)]
pub(super) struct File {
    /// The name below `/static/`.
    pub(super) name: &'static str,
    /// Its `Content-Type`.
    pub(super) content_type: &'static str,
    /// Its bytes.
    pub(super) body: &'static str,
}

/// Finds the static file with this name.
pub(super) fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// All items, in the order of the front page.
pub(super) static ITEMS: [CatalogueItem; 12] = [
    CatalogueItem {
        slug: "umbrella",
        name: "Walking umbrella",
        cents: 4800,
        about: "Eight ribs, a canopy of waxed cotton, and a crook of chestnut that finds every arm.",
    },
    CatalogueItem {
        slug: "lantern",
        name: "Porch lantern",
        cents: 6250,
        about: "Blackened steel and four clear panes: it says that somebody is at home.",
    },
    CatalogueItem {
        slug: "coat-rack",
        name: "Standing coat rack",
        cents: 12900,
        about: "Turned oak with six arms, heavy at the foot, so that it never leans with the coats.",
    },
    CatalogueItem {
        slug: "bench",
        name: "Shoe bench",
        cents: 18500,
        about: "A seat for two with a felt cushion, and a shelf below for four pairs of shoes.",
    },
    CatalogueItem {
        slug: "doormat",
        name: "Coir doormat",
        cents: 2400,
        about: "Thick coconut fibre that takes the rain off boots and does not mind the weather.",
    },
    CatalogueItem {
        slug: "key-bowl",
        name: "Key bowl",
        cents: 3200,
        about: "Stoneware, glazed by hand in two blues: the place where the keys are, at last.",
    },
    CatalogueItem {
        slug: "mirror",
        name: "Oval mirror",
        cents: 9400,
        about: "A frame of pear wood around old-fashioned glass, for the last look before the door.",
    },
    CatalogueItem {
        slug: "wall-clock",
        name: "Wall clock",
        cents: 7600,
        about: "A quiet movement and a face that can be read from the other end of the hall.",
    },
    CatalogueItem {
        slug: "boots",
        name: "Rain boots",
        cents: 5800,
        about: "Natural rubber with a cotton lining, in the yellow that puddles were made for.",
    },
    CatalogueItem {
        slug: "basket",
        name: "Willow basket",
        cents: 3950,
        about: "Woven from peeled willow, wide enough for scarves, gloves and the neighbour's mail.",
    },
    CatalogueItem {
        slug: "door-bell",
        name: "Brass door bell",
        cents: 4400,
        about: "Cast in one piece, with a voice that carries to the garden and no battery to change.",
    },
    CatalogueItem {
        slug: "fern",
        name: "Hallway fern",
        cents: 1900,
        about: "Happy without sun, in a clay pot: the only thing here that grows while you are out.",
    },
];

macro_rules! picture {
    ($name:literal) => {
        File {
            name: $name,
            content_type: "image/svg+xml",
            body: include_str!(concat!("pictures/", $name)),
        }
    };
}

/// All static files.
static FILES: [File; 15] = [
    File {
        name: "shop.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("templates/shop.css"),
    },
    File {
        name: "shop.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_str!("templates/shop.js"),
    },
    picture!("shop.svg"),
    picture!("umbrella.svg"),
    picture!("lantern.svg"),
    picture!("coat-rack.svg"),
    picture!("bench.svg"),
    picture!("doormat.svg"),
    picture!("key-bowl.svg"),
    picture!("mirror.svg"),
    picture!("wall-clock.svg"),
    picture!("boots.svg"),
    picture!("basket.svg"),
    picture!("door-bell.svg"),
    picture!("fern.svg"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_its_picture_and_a_plain_slug() {
        for item in &ITEMS {
            assert!(file(&format!("{}.svg", item.slug)).is_some(), "no picture of {}", item.slug);
            assert!(item.slug.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{item:?}");
        }
    }
}
