//! Whether answers differ by something, or by time and chance.
//!
//! Answers stand in time. Each has a label: what it shows at one place of the page. Each request has a label, too: its
//! value of a possible cause. A *span* is two answers to the same value with an answer to another value between them. If
//! the page depends on the cause, the two are the same and the one between them differs. A change of the page does not do
//! that, because time does not go back; chance does it as often as it makes the one between them equal to one of the two.

/// What an answer shows at a place, or a request has: equal labels are equal values. `None`: it is not known.
pub(crate) type Label = Option<u8>;

/// The spans of a cause at a place of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spans {
    /// Their number.
    pub(crate) spans: u32,
    /// Those whose two answers are the same.
    agree: u32,
    /// Pairs of one of the two and one between them.
    controls: u32,
    /// Those that are the same.
    controls_agree: u32,
    /// Neighbours of the same value that differ, with an answer between them or none.
    pub(crate) differ: u32,
    /// The values of which there are such neighbours.
    pub(crate) differing: u32,
}

impl Spans {
    /// Of labels in the order of time.
    pub(crate) fn of(shown: &[Label], values: &[Label]) -> Self {
        let known: Vec<(u8, u8)> = shown
            .iter()
            .zip(values)
            .filter_map(|(shown, value)| Some(((*shown)?, (*value)?)))
            .collect();
        let mut last: [Option<usize>; 256] = [None; 256];
        let (mut spans, mut differs) = (Self::default(), [false; 256]);
        for (place, (shown, value)) in known.iter().enumerate() {
            if let Some(before) = last[usize::from(*value)].replace(place) {
                spans.add(known[before].0, *shown, &known[before + 1..place]);
                differs[usize::from(*value)] |= known[before].0 != *shown;
            }
        }
        spans.differing = differs.iter().map(|differs| u32::from(*differs)).sum();
        spans
    }

    fn add(&mut self, one: u8, other: u8, between: &[(u8, u8)]) {
        self.differ += u32::from(one != other);
        if between.is_empty() {
            return;
        }
        self.spans += 1;
        self.agree += u32::from(one == other);
        for (shown, _) in between {
            self.controls += 2;
            self.controls_agree += u32::from(*shown == one) + u32::from(*shown == other);
        }
    }

    /// The probability that so many spans agree if the cause does not matter.
    pub(crate) fn chance(&self) -> f64 {
        let by_chance = f64::from(self.controls_agree + 1) / f64::from(self.controls + 2);
        at_least(self.agree, self.spans, by_chance)
    }
}

/// The probability of at least `hits` of `tries` where each has the probability `each`.
fn at_least(hits: u32, tries: u32, each: f64) -> f64 {
    let (mut sum, mut ways) = (0.0, 1.0);
    for k in 0..=tries {
        if k >= hits {
            sum += ways * each.powi(k as i32) * (1.0 - each).powi((tries - k) as i32);
        }
        ways = ways * f64::from(tries - k) / f64::from(k + 1);
    }
    f64::min(sum, 1.0)
}

/// Whether each value was there for one time only: a change of the page explains the labels.
pub(crate) fn is_passing(shown: &[Label]) -> bool {
    let mut runs: Vec<u8> = shown.iter().flatten().copied().collect();
    runs.dedup();
    let all = runs.len();
    runs.sort_unstable();
    runs.dedup();
    runs.len() == all
}

/// How many values there are.
pub(crate) fn values(labels: &[Label]) -> usize {
    let mut seen = [false; 256];
    labels.iter().flatten().for_each(|label| seen[usize::from(*label)] = true);
    seen.iter().filter(|seen| **seen).count()
}

/// Whether equal labels of `fine` have equal labels of `coarse`.
pub(crate) fn refines(fine: &[Label], coarse: &[Label]) -> bool {
    let mut of: [Label; 256] = [None; 256];
    fine.iter().zip(coarse).all(|(fine, coarse)| {
        let (Some(fine), Some(coarse)) = (fine, coarse) else { return true };
        *of[usize::from(*fine)].get_or_insert(*coarse) == *coarse
    })
}

/// Labels for values: equal ones for equal values. Beyond the 255th value all are alike.
pub(crate) fn labels<T: PartialEq>(values: impl Iterator<Item = Option<T>>) -> Vec<Label> {
    let mut known: Vec<T> = Vec::new();
    let mut label = |value: T| {
        let place = known.iter().position(|one| *one == value);
        let place = place.unwrap_or_else(|| {
            known.push(value);
            known.len() - 1
        });
        u8::try_from(place).unwrap_or(u8::MAX)
    };
    values.map(|value| value.map(&mut label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Label> {
        labels(text.chars().map(Some))
    }

    fn chance(shown: &str, values: &str) -> f64 {
        Spans::of(&of(shown), &of(values)).chance()
    }

    #[test]
    fn what_returns_with_its_visitor_is_no_chance() {
        assert!(chance("abab", "1212") < 0.03);
        assert!(chance("abcabc", "123123") < 0.01);
        assert!(chance("aba", "121") > 0.1, "once may be chance");
    }

    #[test]
    fn a_change_of_the_page_is_no_evidence() {
        assert!(chance("aaaabbbb", "12121212") > 0.3);
        assert!(chance("abcdefgh", "12121212") > 0.9, "a clock");
        assert!(chance("aabbccdd", "12123434") > 0.3, "a slow clock");
    }

    #[test]
    fn chance_of_few_values_is_no_evidence() {
        assert!(chance("ababaabbbaba", "123123123123") > 0.1);
    }

    #[test]
    fn time_explains_what_does_not_return() {
        assert!(is_passing(&of("aabbbc")) && is_passing(&of("abc")) && !is_passing(&of("aba")));
    }

    #[test]
    fn a_finer_partition_explains_what_a_coarser_one_does() {
        assert!(refines(&of("1234"), &of("aabb")) && !refines(&of("aabb"), &of("1234")));
        assert_eq!(values(&of("abca")), 3);
    }

    #[test]
    fn the_tail_of_a_binomial_sums_to_one() {
        assert!((at_least(0, 20, 0.3) - 1.0).abs() < 1e-9);
        assert!((at_least(3, 3, 0.5) - 0.125).abs() < 1e-9);
    }
}
