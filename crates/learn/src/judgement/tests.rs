use ::http::HeaderMap;
use ahash::RandomState;
use anteroom_cache::purge::PurgeSnapshot;

use super::*;
use crate::causes::CookieValue;
use crate::pieces::{AnswerPieces, AnswerText};
use crate::sample::{AnswerSeen, FieldNames};

/// A request of a visitor: the language, and the cookies by place and value.
type SampleRequest<'a> = (u64, u32, &'a [(u8, u32)], &'a str);

fn pieces_of(text: &str) -> AnswerPieces {
    let key = RandomState::with_seeds(1, 2, 3, 4);
    let fields = HeaderMap::new();
    let answer =
        AnswerText { head: b"", fields: &fields, body: text.as_bytes(), is_text: true, now: 0 };
    AnswerPieces::of(&key, &answer, None)
}

fn seen((visitor, language, cookies, _): &SampleRequest<'_>) -> AnswerSeen {
    let mut causes = Causes::default();
    causes.fields[0] = *visitor as u32 + 1;
    causes.fields[2] = *language;
    causes.cookies =
        cookies.iter().map(|(place, value)| CookieValue { place: *place, value: *value }).collect();
    AnswerSeen {
        visitor: *visitor,
        renewed_known: 0,
        causes,
        is_shared: true,
        finding: None,
        at: 0,
    }
}

fn sample(answers: &[SampleRequest<'_>]) -> Sample {
    let mut sample = Sample::default();
    for asked in answers {
        sample.add(seen(asked), &pieces_of(asked.3), &PurgeSnapshot::default(), |_| true);
    }
    sample
}

fn difference(answers: &[SampleRequest<'_>]) -> Option<Difference> {
    Judgement::of(&sample(answers), |_| true, &FieldNames::new()).difference_beside(&[])
}

fn effect(answers: &[SampleRequest<'_>], place: u8) -> Option<CookieEffect> {
    let sample = sample(answers);
    let effects = Judgement::of(&sample, |_| true, &FieldNames::new()).effects(0);
    effects.iter().find(|(own, _)| *own == place).map(|(_, effect)| *effect)
}

/// Answers of visitors without cookies.
fn plain(answers: &[(u64, &str)]) -> Option<Difference> {
    let asked: Vec<SampleRequest<'_>> =
        answers.iter().map(|(visitor, text)| (*visitor, 0, &[][..], *text)).collect();
    difference(&asked)
}

#[test]
fn a_page_that_is_the_same_for_all_is_the_same() {
    assert_eq!(plain(&[(1, "a"), (1, "a")]), None, "one visitor only");
    assert_eq!(plain(&[(1, "a"), (2, "a")]), Some(Difference::Same));
}

#[test]
fn what_a_visitor_sees_again_and_others_do_not_is_the_visitors() {
    let (ann, bob) = ((1, "Ann\nx"), (2, "Bob\nx"));
    assert_eq!(plain(&[ann, bob, ann, bob]), Some(Difference::ByVisitor));
    assert!(matches!(plain(&[ann, bob, ann]), Some(Difference::Undecided(_))), "by chance?");
    let once = plain(&[ann, bob, (3, "Cid\nx")]);
    assert_eq!(once, Some(Difference::Undecided(MissingEvidence::Return)), "each may be a nonce");
}

#[test]
fn a_page_that_was_changed_does_not_differ() {
    let changed = plain(&[(1, "old\nx"), (2, "old\nx"), (3, "new\nx"), (4, "new\nx")]);
    assert_eq!(changed, Some(Difference::Undecided(MissingEvidence::Return)));
    let again = plain(&[(1, "old\nx"), (2, "old\nx"), (2, "new\nx"), (4, "new\nx"), (5, "new\nx")]);
    assert_eq!(again, Some(Difference::Noise));
}

#[test]
fn a_nonce_and_a_clock_are_noise() {
    let nonce = [(1, "n1\nx"), (2, "n2\nx"), (1, "n3\nx"), (2, "n4\nx")];
    assert_eq!(
        plain(&nonce),
        Some(Difference::Undecided(MissingEvidence::Answers)),
        "or an edit of both"
    );
    let more = [&nonce[..], &[(1, "n5\nx"), (2, "n6\nx")]].concat();
    assert_eq!(plain(&more), Some(Difference::Noise));
    let clock = plain(&[(1, "t1\nx"), (1, "t1\nx"), (2, "t2\nx"), (2, "t2\nx")]);
    assert_eq!(
        clock,
        Some(Difference::Undecided(MissingEvidence::Return)),
        "the clock does not go back"
    );
}

#[test]
fn what_changes_for_all_visitors_at_once_again_and_again_is_a_clock() {
    let texts: Vec<String> = (0..12).map(|n| format!("second {}\nx", n / 3)).collect();
    let page: Vec<(u64, &str)> = (0..).zip(texts.iter().map(String::as_str)).collect();
    assert_eq!(plain(&page), Some(Difference::Noise));
    let once: Vec<(u64, &str)> = (0..).zip(texts[..6].iter().map(String::as_str)).collect();
    assert_eq!(
        plain(&once),
        Some(Difference::Undecided(MissingEvidence::Return)),
        "an edit, or a country"
    );
}

#[test]
fn a_clock_does_not_hide_what_one_visitor_alone_sees() {
    let hours: Vec<(u64, String)> = (0..24)
        .map(|n| (n, format!("hour {}\n{}\nx", n / 3, if n == 7 { "CHF" } else { "EUR" })))
        .chain([(30, "hour 9\nCHF\nx".to_owned()), (31, "hour 10\nEUR\nx".to_owned())])
        .collect();
    let page: Vec<(u64, &str)> =
        hours.iter().map(|(visitor, text)| (*visitor, text.as_str())).collect();
    assert!(matches!(plain(&page), Some(Difference::Undecided(_))), "{:?}", plain(&page));
}

#[test]
fn one_edit_is_no_noise_where_visitors_see_different_things() {
    let text = |n: u64, is_new: bool| match (n.is_multiple_of(3), is_new) {
        (true, false) => "CHF 1\nx",
        (true, true) => "CHF 2\nx",
        (false, false) => "EUR 1\nx",
        (false, true) => "EUR 2\nx",
    };
    let before = (0..20).map(|n| (n, text(n, false)));
    let after = [3, 4].into_iter().chain(20..38).map(|n| (n, text(n, true)));
    let page: Vec<(u64, &str)> = before.chain(after).collect();
    assert!(matches!(plain(&page), Some(Difference::Undecided(_))), "{:?}", plain(&page));
}

#[test]
fn a_believed_cause_explains_no_place_that_is_another_each_time() {
    let texts: Vec<(u32, String)> = (0..24)
        .map(|n| {
            (1 + n % 3, format!("{}\nYou are visitor {n}\nx", ["de", "en", "fr"][n as usize % 3]))
        })
        .collect();
    let page: Vec<SampleRequest<'_>> = (0..)
        .zip(&texts)
        .map(|(n, (language, text))| (n, *language, &[][..], text.as_str()))
        .collect();
    let found = Judgement::of(&sample(&page), |_| true, &FieldNames::new())
        .difference_beside(&[Cause::Field(RequestField::AcceptLanguage)]);
    assert!(found > Some(Difference::Noise), "{found:?}");
}

#[test]
fn a_page_with_more_places_than_are_compared_is_not_decided() {
    let texts: Vec<String> = (0..12)
        .map(|n| {
            (0..150)
                .map(|row| format!("same {row}\n{}\n", if n % 7 == row % 7 { n } else { 0 }))
                .collect()
        })
        .collect();
    let page: Vec<(u64, &str)> = (0..).zip(texts.iter().map(String::as_str)).collect();
    assert!(plain(&page) >= Some(Difference::Undecided(MissingEvidence::Answers)));
}

#[test]
fn a_nonce_does_not_hide_a_name() {
    let page = [(1, "n1\nAnn\nx"), (2, "n2\nBob\nx"), (1, "n3\nAnn\nx"), (2, "n4\nBob\nx")];
    let page: Vec<_> = [&page[..], &[(1, "n5\nAnn\nx"), (2, "n6\nBob\nx")]].concat();
    assert_eq!(plain(&page), Some(Difference::ByVisitor));
}

#[test]
fn noise_of_few_values_is_no_difference_between_visitors() {
    let times = ["7", "8", "7", "8", "7", "7", "8", "8", "8", "7", "8", "7"];
    let page: Vec<(u64, String)> = (0..)
        .map(|n| n % 3)
        .zip(times)
        .map(|(visitor, time)| (visitor, format!("{time}\nx")))
        .collect();
    let page: Vec<(u64, &str)> =
        page.iter().map(|(visitor, text)| (*visitor, text.as_str())).collect();
    assert_eq!(plain(&page), Some(Difference::Noise));
}

#[test]
fn a_page_that_differs_by_a_cookie_names_it() {
    let once: [SampleRequest<'_>; 4] = [
        (1, 0, &[], "plain\nx"),
        (2, 0, &[(5, 1)], "dark\nx"),
        (3, 0, &[], "plain\nx"),
        (4, 0, &[(5, 1)], "dark\nx"),
    ];
    assert_eq!(effect(&once, 5), Some(CookieEffect::Suspect), "chance may do the same");
    assert_eq!(effect(&once[..3], 5), Some(CookieEffect::Possible), "chance does the same");
    let twice = [&once[..], &once[..]].concat();
    assert_eq!(difference(&twice), Some(Difference::ByCookie(5)));
    assert_eq!(effect(&twice, 5), Some(CookieEffect::Differs));
    assert_eq!(effect(&twice, 6), None);
}

#[test]
fn a_cookie_of_three_values_is_the_cause_whatever_each_visitor_has_beside_it() {
    let values =
        [(1, "EUR\nx"), (2, "USD\nx"), (3, "GBP\nx"), (1, "EUR\nx"), (1, "EUR\nx"), (2, "USD\nx")];
    let cookies: Vec<[(u8, u32); 2]> =
        (0..24_u32).map(|n| [(3, values[n as usize % 6].0), (7, 100 + n)]).collect();
    let page: Vec<SampleRequest<'_>> = (0..24_u64)
        .map(|n| (n, n as u32 % 5, &cookies[n as usize][..], values[n as usize % 6].1))
        .collect();
    assert_eq!(difference(&page), Some(Difference::ByCookie(3)));
    assert_eq!(effect(&page, 7), Some(CookieEffect::Same), "with the other one held fixed");
}

#[test]
fn a_language_is_the_cause_and_not_the_cookie_that_comes_with_most_of_it() {
    let page: Vec<SampleRequest<'_>> = (0..24_u64)
        .map(|n| {
            let language = [1, 2, 1, 1, 2, 3][n as usize % 6];
            let cookie: &[(u8, u32)] = if n % 4 == 0 { &[(3, 1)] } else { &[(3, 2)] };
            (n, language, cookie, ["de\nx", "en\nx", "fr\nx"][language as usize - 1])
        })
        .collect();
    assert_eq!(difference(&page), Some(Difference::ByField(RequestField::AcceptLanguage)));
    assert_eq!(effect(&page, 3), Some(CookieEffect::Same));
}

#[test]
fn causes_that_always_change_together_are_both_named() {
    let page: Vec<SampleRequest<'_>> = (0..24_u64)
        .map(|n| match n % 3 {
            0 => (n, 1, &[(3, 1)][..], "de\nx"),
            _ => (n, 2, &[(3, 2)][..], "en\nx"),
        })
        .collect();
    assert_eq!(difference(&page), Some(Difference::SeveralCauses));
    assert_eq!(effect(&page, 3), Some(CookieEffect::Involved));
}

#[test]
fn a_change_in_between_does_not_hide_a_cause() {
    let page: Vec<SampleRequest<'_>> = (0..32_u64)
        .map(|n| {
            let text = match (n % 2, n < 16) {
                (0, true) => "de\nold",
                (_, true) => "en\nold",
                (0, false) => "de2\nnew",
                (_, false) => "en2\nnew",
            };
            (n % 20, 1 + (n % 2) as u32, &[][..], text)
        })
        .collect();
    assert_eq!(difference(&page), Some(Difference::ByField(RequestField::AcceptLanguage)));
}

#[test]
fn a_list_of_what_the_visitor_saw_before_is_no_noise() {
    let mut page: Vec<(u64, String)> = Vec::new();
    for round in 0..4 {
        for visitor in 1..8_u64 {
            let seen: String =
                (0..round).map(|n| format!("<li>item {}\n", visitor * 3 + n)).collect();
            page.push((visitor, format!("top\n{seen}end\n")));
        }
    }
    let page: Vec<(u64, &str)> =
        page.iter().map(|(visitor, text)| (*visitor, text.as_str())).collect();
    let found = plain(&page);
    assert!(found >= Some(Difference::Undecided(MissingEvidence::Answers)), "{found:?}");
}

#[test]
fn a_cookie_without_effect_is_known_as_such() {
    let page: Vec<SampleRequest<'_>> = (0..12_u64)
        .map(|n| match n % 4 {
            0 => (n, 0, &[][..], "x"),
            1 => (n, 0, &[(5, 1)][..], "x"),
            _ => (n, 0, &[(5, 2)][..], "x"),
        })
        .collect();
    assert_eq!(effect(&page, 5), Some(CookieEffect::Same));
    let flag: [SampleRequest<'_>; 2] = [(1, 0, &[], "x"), (2, 0, &[(5, 1)], "x")];
    assert_eq!(effect(&flag, 5), Some(CookieEffect::SameWithout));
}

#[test]
fn a_nonce_that_was_seen_once_blames_no_cookie() {
    let page: [SampleRequest<'_>; 3] =
        [(1, 0, &[], "n1\nx"), (2, 0, &[(5, 1)], "n2\nx"), (3, 0, &[], "n3\nx")];
    assert_eq!(effect(&page, 5), Some(CookieEffect::Unreturned));
}

#[test]
fn a_cookie_that_came_with_another_is_told_from_it() {
    let (first, both): (&[_], &[_]) = (&[(5, 1)], &[(0, 7), (5, 1)]);
    let other: &[(u8, u32)] = &[(0, 8), (5, 2)];
    let round: [SampleRequest<'_>; 5] = [
        (1, 0, &[], "x"),
        (2, 0, first, "x"),
        (3, 0, both, "x\nAnn"),
        (4, 0, other, "x\nBob"),
        (5, 0, &[(5, 2)], "x"),
    ];
    let page = round.repeat(3);
    assert_eq!(effect(&page, 5), Some(CookieEffect::Same));
    assert_eq!(effect(&page, 0), Some(CookieEffect::Differs));
}

#[test]
fn answers_that_come_later_have_room() {
    let mut sample = Sample::default();
    let add = |sample: &mut Sample, asked: &SampleRequest<'_>| {
        if sample.wants(asked.0, &seen(asked).causes) {
            sample.add(seen(asked), &pieces_of(asked.3), &PurgeSnapshot::default(), |_| true);
        }
    };
    (0..500).for_each(|visitor| add(&mut sample, &(visitor, 1, &[], "en\nx")));
    (500..800).for_each(|visitor| {
        add(
            &mut sample,
            &(
                visitor,
                1 + u32::from(visitor % 20 == 0),
                &[],
                if visitor % 20 == 0 { "de\nx" } else { "en\nx" },
            ),
        );
    });
    assert!(sample.observations().len() <= crate::sample::ANSWERS_MAX);
    let judged = Judgement::of(&sample, |_| true, &FieldNames::new()).difference_beside(&[]);
    assert_eq!(judged, Some(Difference::ByField(RequestField::AcceptLanguage)));
}

#[test]
fn a_difference_that_nothing_says_is_found_among_many() {
    let mut sample = Sample::default();
    for round in 0..3_u64 {
        for visitor in 0..400_u64 {
            let text = if visitor % 3 == 0 { "CH\nx" } else { "DE\nx" };
            let asked: SampleRequest<'_> = (visitor, 1, &[], text);
            let mut seen = seen(&asked);
            seen.causes.fields[0] = 1 + visitor as u32;
            if sample.wants(visitor, &seen.causes) {
                sample.add(seen, &pieces_of(text), &PurgeSnapshot::default(), |_| true);
            }
        }
        let judged = Judgement::of(&sample, |_| true, &FieldNames::new()).difference_beside(&[]);
        assert!(
            judged >= Some(Difference::Undecided(MissingEvidence::Answers)),
            "{round}: {judged:?}"
        );
    }
    assert_eq!(
        Judgement::of(&sample, |_| true, &FieldNames::new()).difference_beside(&[]),
        Some(Difference::ByVisitor)
    );
}
