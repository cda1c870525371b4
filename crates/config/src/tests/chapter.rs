//! The numbers of the chapter that Anteroom follows: each is a default.

use std::time::Duration;

use super::usual;

#[test]
fn every_number_of_the_chapter_is_a_default() {
    let plan = usual();
    let seconds = Duration::from_secs;
    // The items that a visitor viewed last, and how long a page is kept.
    assert_eq!(plan.session.viewed_items, 25);
    assert_eq!(plan.cache.default_ttl, seconds(300));
    // The sessions kept, how many are removed in a step, the rest in between; carts go, too.
    assert_eq!(plan.session.max_sessions, 10_000_000);
    assert_eq!(plan.session.clean_batch, 100);
    assert_eq!(plan.session.clean_every, seconds(1));
    assert!(plan.session.clean_carts);
    // The items that keep a rank, how often scores are rescaled, and to what.
    assert_eq!(plan.views.keep_top, 20_000);
    assert_eq!(plan.views.rescale_every, seconds(300));
    assert_eq!(plan.views.rescale_percent, 50);
}
