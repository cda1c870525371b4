//! The name that was probably meant by a mistyped one.

/// The name among `valid` that was probably intended.
#[must_use]
pub fn nearest<'n>(name: &str, valid: &[&'n str]) -> Option<&'n str> {
    // The comparison costs the product of both lengths, so long names are skipped.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let apart = |known: &&'n str| (strsim::osa_distance(name, known), *known);
    let (distance, near) = valid.iter().map(apart).min()?;
    (distance <= near.len().div_ceil(3)).then_some(near)
}
