//! The shop's pages and their content. The markup is in `templates/`, one file per page.
//!
//! Public pages are the same for everyone: they have no name, no cart, and no token in a form. `shop` decides
//! which request gets which page.

use std::time::Duration;

use super::catalogue::{CatalogueItem, ITEMS};
use super::html::Html;

/// When a page was made and how long that took, for the line at its foot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// The time, in Unix seconds.
    pub(super) at: f64,
    /// How long the page took to make.
    pub(super) took: Duration,
}

/// The front page: the grid of all items.
pub(super) fn front(made: Made) -> Html {
    let cards = ITEMS.iter().map(card).collect();
    let main = Html::fill(include_str!("templates/front.html"), &[("cards", &cards)]);
    frame("Things for the hall", "public", &main, made)
}

/// The page of one item. Its form has no CSRF field, so that the page can be shared. The session cookie is
/// `SameSite=Lax`, so browsers leave it out of a POST from another site.
pub(super) fn item(item: &CatalogueItem, made: Made) -> Html {
    let main = Html::fill(
        include_str!("templates/item.html"),
        &[
            ("slug", &Html::text(item.slug)),
            ("name", &Html::text(item.name)),
            ("price", &price(item.cents)),
            ("about", &Html::text(item.about)),
            ("others", &others(item).map(card).collect()),
        ],
    );
    frame(item.name, "public", &main, made)
}

/// The cart page: all items, hidden. A script shows those that the proxy reports as in the visitor's cart, so
/// the page is the same for everyone.
pub(super) fn cart(made: Made) -> Html {
    let rows = ITEMS.iter().map(row).collect();
    let main = Html::fill(include_str!("templates/cart.html"), &[("rows", &rows)]);
    frame("Your cart", "public", &main, made)
}

/// The log-in form, with the reason why the last attempt failed, if any. The form has no CSRF field, so that
/// the page can be shared: the shop keeps no sessions to bind one to.
pub(super) fn login(problem: Option<&str>, made: Made) -> Html {
    let problem = problem.map_or_else(Html::default, |why| {
        Html::fill(r#"<p class="problem" role="alert">{{why}}</p>"#, &[("why", &Html::text(why))])
    });
    let main = Html::fill(include_str!("templates/login.html"), &[("problem", &problem)]);
    frame("Log in", "public", &main, made)
}

/// The personal page: the user and session that the proxy reports.
pub(super) fn account(user: &str, session: &str, made: Made) -> Html {
    let main = Html::fill(
        include_str!("templates/account.html"),
        &[("user", &Html::text(user)), ("session", &Html::text(session))],
    );
    frame("Your account", "personal", &main, made)
}

/// The example of the documentation: a page for everyone, with a script that requests the visitor's own data.
pub(super) fn example() -> Html {
    Html::fill(include_str!("../../../docs/browser/page.html"), &[])
}

/// A page with a message: what happened, and one sentence about it.
pub(super) fn message(title: &str, about: &str, made: Made) -> Html {
    let main = Html::fill(
        include_str!("templates/message.html"),
        &[("title", &Html::text(title)), ("about", &Html::text(about))],
    );
    frame(title, "public", &main, made)
}

fn frame(title: &str, kind: &str, main: &Html, made: Made) -> Html {
    Html::fill(
        include_str!("templates/frame.html"),
        &[
            ("title", &Html::text(title)),
            ("kind", &Html::text(kind)),
            ("main", main),
            ("made-at", &Html::text(&time_of_day(made.at))),
            ("made-in", &Html::text(&made.took.as_millis().to_string())),
        ],
    )
}

fn row(item: &CatalogueItem) -> Html {
    Html::fill(
        include_str!("templates/row.html"),
        &[
            ("slug", &Html::text(item.slug)),
            ("name", &Html::text(item.name)),
            ("cents", &Html::text(&item.cents.to_string())),
            ("price", &price(item.cents)),
        ],
    )
}

fn card(item: &CatalogueItem) -> Html {
    Html::fill(
        include_str!("templates/card.html"),
        &[
            ("slug", &Html::text(item.slug)),
            ("name", &Html::text(item.name)),
            ("price", &price(item.cents)),
        ],
    )
}

/// Four items that follow `item` in the catalogue.
fn others(item: &CatalogueItem) -> impl Iterator<Item = &'static CatalogueItem> {
    let after = ITEMS.iter().position(|other| other.slug == item.slug).map_or(0, |at| at + 1);
    ITEMS.iter().cycle().skip(after).take(4)
}

fn price(cents: u32) -> Html {
    Html::text(&format!("€ {}.{:02}", cents / 100, cents % 100))
}

/// `HH:MM:SS` in UTC. The page labels it as UTC, because a server's time zone means nothing to the reader.
fn time_of_day(unix: f64) -> String {
    // A float-to-integer `as` saturates, so an invalid clock gives midnight and no panic.
    let second = unix as u64 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Made = Made { at: 1_700_000_000.9, took: Duration::from_millis(300) };

    fn all() -> Vec<String> {
        let mut pages = vec![
            front(MADE),
            cart(MADE),
            login(None, MADE),
            login(Some("no name"), MADE),
            account("ada", "known", MADE),
            message("Not found", "Nothing here.", MADE),
        ];
        pages.extend(ITEMS.iter().map(|one| item(one, MADE)));
        pages.into_iter().map(Html::into_string).collect()
    }

    #[test]
    fn every_mark_of_every_template_is_filled() {
        for page in all() {
            assert!(!page.contains("{{") && !page.contains("}}"), "{page}");
        }
    }

    #[test]
    fn every_page_says_when_it_was_made() {
        for page in all() {
            assert!(page.contains("<time>22:13:20</time> UTC in 300&nbsp;ms"), "{page}");
        }
    }

    #[test]
    fn no_form_has_a_field_that_looks_like_a_csrf_token() {
        for page in all() {
            assert!(!page.to_ascii_lowercase().contains("csrf") && !page.contains("_token"));
            assert!(!page.contains(r#"type="hidden""#));
        }
    }

    #[test]
    fn a_user_name_is_shown_as_text() {
        let page = account("<script>alert(1)</script>", "known", MADE).into_string();
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
    }

    #[test]
    fn an_item_is_not_among_its_own_neighbours() {
        for one in &ITEMS {
            assert!(others(one).all(|other| other.slug != one.slug));
            assert_eq!(others(one).count(), 4);
        }
    }

    #[test]
    fn a_clock_out_of_range_still_gives_a_time() {
        for unix in [f64::NAN, f64::INFINITY, -5.0] {
            assert_eq!(time_of_day(unix).len(), 8);
        }
    }
}
