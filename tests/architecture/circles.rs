//! Circles of files: those that lead back to themselves by what they import.

use std::collections::BTreeSet;

use super::tree::{Arrows, Tree};

/// Each circle with what ties it, but for a `mod.rs` with its own children, which may use what it
/// says of all of them. The children must form no circle without it.
pub(crate) fn circles(tree: &Tree, passed_over: &[&str]) -> Vec<String> {
    let arrows = tree.arrows();
    let knots = knots(tree.modules.len(), &arrows);
    let wrong = knots.iter().filter(|knot| !is_family(tree, &arrows, knot));
    let named = wrong.filter(|knot| {
        !knot
            .iter()
            .all(|at| passed_over.iter().any(|under| tree.modules[*at].file.starts_with(under)))
    });
    named.map(|knot| tell(tree, &arrows, knot)).collect()
}

/// The files and the names that tie them.
fn tell(tree: &Tree, arrows: &Arrows, knot: &BTreeSet<usize>) -> String {
    let inside = inside(arrows, knot).map(|((from, to), names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (from, to) = (&tree.modules[*from].file, &tree.modules[*to].file);
        format!("  {from} -> {to}: {}", names.join(", "))
    });
    let lines: Vec<String> = inside.collect();
    format!("a circle of {} files:\n{}", knot.len(), lines.join("\n"))
}

type Arrow<'a> = (&'a (usize, usize), &'a BTreeSet<String>);

fn inside<'a>(
    arrows: &'a Arrows,
    knot: &'a BTreeSet<usize>,
) -> impl Iterator<Item = Arrow<'a>> + Clone {
    arrows.iter().filter(|((from, to), _)| knot.contains(from) && knot.contains(to))
}

/// Whether all arrows are between a `mod.rs` and its own children, or among its children, which form
/// no circle without it.
fn is_family(tree: &Tree, arrows: &Arrows, knot: &BTreeSet<usize>) -> bool {
    let names = |at: usize| tree.modules[at].names.as_slice();
    let above = |at: usize| names(at).split_last().map(|(_, above)| above);
    let is_child = |at: usize, of: usize| above(at) == Some(names(of));
    let inside = inside(arrows, knot);
    let is_near = inside.clone().all(|((from, to), _)| {
        is_child(*from, *to) || is_child(*to, *from) || above(*from) == above(*to)
    });
    let among = inside.filter(|((from, to), _)| !is_child(*from, *to));
    let among: Arrows = among.map(|(ends, names)| (*ends, names.clone())).collect();
    is_near && knots(tree.modules.len(), &among).is_empty()
}

/// The greatest sets of files of which each leads to each other, of two files or more.
fn knots(count: usize, arrows: &Arrows) -> Vec<BTreeSet<usize>> {
    let mut reached = vec![BTreeSet::new(); count];
    for (from, reached) in reached.iter_mut().enumerate() {
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            let targets = arrows.range((at, 0)..(at + 1, 0)).map(|((_, to), _)| *to);
            next.extend(targets.filter(|to| reached.insert(*to)));
        }
    }
    let knot = |at: usize| -> BTreeSet<usize> {
        reached[at].iter().copied().filter(|other| reached[*other].contains(&at)).collect()
    };
    let knots: BTreeSet<_> = (0..count).map(knot).filter(|knot| knot.len() > 1).collect();
    knots.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)], passed_over: &[&str]) -> Vec<String> {
        circles(&Tree::of([("lib.rs", "")].into_iter().chain(files.iter().copied())), passed_over)
    }

    #[test]
    fn a_circle_is_named_with_what_ties_it() {
        let files = [
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "pub struct C(crate::a::A);"),
            ("d.rs", "use crate::a::A;"),
        ];
        let told = "a circle of 3 files:\n  a.rs -> b.rs: B\n  b.rs -> c.rs: C\n  c.rs -> a.rs: A";
        assert_eq!(of(&files, &[]), [told]);
        assert_eq!(of(&files, &["a.rs", "b.rs", "c.rs"]), [""; 0]);
        assert_eq!(of(&files, &["a.rs", "b.rs"]).len(), 1);
    }

    #[test]
    fn a_folder_and_its_own_children_are_a_family() {
        let files = [
            ("a/mod.rs", "mod x; mod y; use x::X; pub struct A;"),
            ("a/x.rs", "use super::A; use super::y::Y; pub struct X;"),
            ("a/y.rs", "use super::A; pub struct Y;"),
        ];
        assert_eq!(of(&files, &[]), [""; 0]);
    }

    #[test]
    fn children_that_form_a_circle_without_it_are_none() {
        let files = [
            ("a/mod.rs", "mod x; mod y; use x::X; pub struct A;"),
            ("a/x.rs", "use super::A; use super::y::Y; pub struct X;"),
            ("a/y.rs", "use super::x::X; pub struct Y;"),
        ];
        assert_eq!(of(&files, &[]).len(), 1);
    }

    #[test]
    fn neither_is_a_circle_through_a_stranger_or_a_grandchild() {
        let stranger = [
            ("a/mod.rs", "mod x; use crate::b::B; pub struct A;"),
            ("a/x.rs", "use super::A; pub struct X;"),
            ("b.rs", "use crate::a::x::X; pub struct B;"),
        ];
        assert_eq!(of(&stranger, &[]).len(), 1);
        let grandchild = [
            ("a/mod.rs", "mod x; use x::y::Y; pub struct A;"),
            ("a/x/mod.rs", "pub mod y;"),
            ("a/x/y.rs", "use crate::a::A; pub struct Y;"),
        ];
        assert_eq!(of(&grandchild, &[]).len(), 1);
    }
}
