//! The shop's pages and their content. The markup is in `templates/`, one file per page.
//!
//! Public pages are the same for everyone: they have no name, no cart, and no token in a form. `shop` decides
//! which request gets which page.

use std::time::Duration;

use super::catalogue::{CatalogueItem, ITEMS};
use super::html::Html;

/// When a page was made and how long that took, for the line at its foot.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageTiming {
    /// The time, in Unix seconds.
    pub(super) at: f64,
    /// How long the page took to make.
    pub(super) took: Duration,
}

/// One step of the tour on the front page.
#[derive(Clone, Debug)]
pub struct TourStep {
    /// What the step is about.
    pub title: String,
    /// The commands to type, in order.
    pub commands: Vec<TourCommand>,
}

/// One command of the tour.
#[derive(Clone, Debug)]
pub struct TourCommand {
    /// What the command shows. Text in backticks is literal.
    pub note: String,
    /// The command, for a shell.
    pub command: String,
}

/// The front page: the tour, if there is one, and the grid of all items.
pub(super) fn front(steps: &[TourStep], made: PageTiming) -> Html {
    let cards = ITEMS.iter().map(card).collect();
    let tour = if steps.is_empty() { Html::default() } else { tour(steps) };
    let main =
        Html::fill(include_str!("templates/front.html"), &[("cards", &cards), ("tour", &tour)]);
    frame("Things for the hall", "public", &main, Some(made))
}

fn tour(steps: &[TourStep]) -> Html {
    let command = |one: &TourCommand| {
        Html::fill(
            "<dt>{{note}}</dt>\n<dd><code>{{command}}</code></dd>\n",
            &[("note", &note(&one.note)), ("command", &Html::text(&one.command))],
        )
    };
    let step = |step: &TourStep| {
        let commands = step.commands.iter().map(command).collect();
        Html::fill(
            "<li>\n<h3>{{title}}</h3>\n<dl>\n{{commands}}</dl>\n</li>\n",
            &[("title", &Html::text(&step.title)), ("commands", &commands)],
        )
    };
    let steps = steps.iter().map(step).collect();
    Html::fill(include_str!("templates/tour.html"), &[("steps", &steps)])
}

/// A note as markup: each second part between backticks is literal.
fn note(text: &str) -> Html {
    let parts = text.split('`').enumerate().map(|(at, part)| {
        let part = Html::text(part);
        if at % 2 == 1 { Html::fill("<code>{{part}}</code>", &[("part", &part)]) } else { part }
    });
    parts.collect()
}

/// A page for everyone. The proxy fills its two empty elements for each visitor.
pub(super) fn greeting(made: PageTiming) -> Html {
    let main = Html::fill(include_str!("templates/greeting.html"), &[]);
    frame("Greeting", "public", &main, Some(made))
}

/// The content of an element of [`greeting`].
pub(super) fn greeting_partial(user: Option<&str>, made: PageTiming) -> Html {
    Html::fill(
        "made for {{user}} at {{at}} UTC",
        &[
            ("user", &Html::text(user.unwrap_or("a guest"))),
            ("at", &Html::text(&time_of_day(made.at))),
        ],
    )
}

/// The prices of a group. The page shows no time, so that all users of the group are answered the same.
pub(super) fn offers(group: Option<&str>) -> Html {
    let (group, percent) = match group {
        Some("trade") => ("trade", "20"),
        Some(_) => ("other users", "5"),
        None => ("guests", "0"),
    };
    let main = Html::fill(
        include_str!("templates/offers.html"),
        &[("group", &Html::text(group)), ("percent", &Html::text(percent))],
    );
    frame("Offers", "public", &main, None)
}

/// The page after the shop was told to fail, or to work again.
pub(super) fn switched(fails: bool, made: PageTiming) -> Html {
    let (title, about, target, label) = match fails {
        true => (
            "The shop fails now",
            "It answers 500 to everything but this switch. Stored pages are still served.",
            "/tour/recover",
            "Let the shop recover",
        ),
        false => ("The shop works again", "Pages are made as before.", "/tour/fail", "Let it fail"),
    };
    let main = Html::fill(
        include_str!("templates/switched.html"),
        &[
            ("title", &Html::text(title)),
            ("about", &Html::text(about)),
            ("target", &Html::text(target)),
            ("label", &Html::text(label)),
        ],
    );
    frame(title, "personal", &main, Some(made))
}

/// The page of one item. Its form has no CSRF field, so that the page can be shared. The session cookie is
/// `SameSite=Lax`, so browsers leave it out of a POST from another site.
pub(super) fn item(item: &CatalogueItem, made: PageTiming) -> Html {
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
    frame(item.name, "public", &main, Some(made))
}

/// The cart page: all items, hidden. A script shows those that the proxy reports as in the visitor's cart, so
/// the page is the same for everyone.
pub(super) fn cart(made: PageTiming) -> Html {
    let rows = ITEMS.iter().map(row).collect();
    let main = Html::fill(include_str!("templates/cart.html"), &[("rows", &rows)]);
    frame("Your cart", "public", &main, Some(made))
}

/// The login form, with the reason why the last attempt failed, if any. The form has no CSRF field, so that
/// the page can be shared: the shop keeps no sessions to bind one to.
pub(super) fn login(problem: Option<&str>, made: PageTiming) -> Html {
    let problem = problem.map_or_else(Html::default, |why| {
        Html::fill(r#"<p class="problem" role="alert">{{why}}</p>"#, &[("why", &Html::text(why))])
    });
    let main = Html::fill(include_str!("templates/login.html"), &[("problem", &problem)]);
    frame("Log in", "public", &main, Some(made))
}

/// The personal page: the user and session that the proxy reports.
pub(super) fn account(user: &str, session: &str, made: PageTiming) -> Html {
    let main = Html::fill(
        include_str!("templates/account.html"),
        &[("user", &Html::text(user)), ("session", &Html::text(session))],
    );
    frame("Your account", "personal", &main, Some(made))
}

/// The example of the documentation: a page for everyone, with a script that requests the visitor's own data.
pub(super) fn example() -> Html {
    Html::fill(include_str!("../../../docs/browser/page.html"), &[])
}

/// A page with a message: what happened, and one sentence about it.
pub(super) fn message(title: &str, about: &str, made: PageTiming) -> Html {
    let main = Html::fill(
        include_str!("templates/message.html"),
        &[("title", &Html::text(title)), ("about", &Html::text(about))],
    );
    frame(title, "public", &main, Some(made))
}

fn frame(title: &str, kind: &str, main: &Html, made: Option<PageTiming>) -> Html {
    let made = made.map_or_else(Html::default, |made| {
        Html::fill(
            include_str!("templates/made.html"),
            &[
                ("at", &Html::text(&time_of_day(made.at))),
                ("in", &Html::text(&made.took.as_millis().to_string())),
            ],
        )
    });
    Html::fill(
        include_str!("templates/frame.html"),
        &[
            ("title", &Html::text(title)),
            ("kind", &Html::text(kind)),
            ("main", main),
            ("made", &made),
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

    const MADE: PageTiming = PageTiming { at: 1_700_000_000.9, took: Duration::from_millis(300) };

    fn step() -> TourStep {
        let command = "curl -d 'a=<b>&c'".to_owned();
        let note = "A miss: `fwd=uri-miss`, in <time>".to_owned();
        TourStep { title: "Hits".to_owned(), commands: vec![TourCommand { note, command }] }
    }

    fn all() -> Vec<String> {
        let mut pages = vec![
            front(&[], MADE),
            front(&[step()], MADE),
            greeting(MADE),
            switched(true, MADE),
            switched(false, MADE),
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
    fn the_front_page_shows_the_tour_as_text() {
        let page = front(&[step()], MADE).into_string();
        assert!(page.contains("A miss: <code>fwd=uri-miss</code>, in &lt;time&gt;"), "{page}");
        assert!(page.contains("<code>curl -d &#39;a=&lt;b&gt;&amp;c&#39;</code>"), "{page}");
    }

    #[test]
    fn the_offers_are_the_same_for_all_users_of_a_group() {
        let page = offers(Some("trade")).into_string();
        assert!(page.contains("20&nbsp;% off") && !page.contains("{{"), "{page}");
        assert!(!page.contains("<time>"), "{page}");
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
