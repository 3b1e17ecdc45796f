//! The nearest of several words to a misspelt one. Pure; used for messages only.

/// The candidate that was probably meant, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let limit = (folded.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= limit
                || (candidate.len() > 3 && word.len() > 3 && fold(candidate).starts_with(&folded))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `maxTimeout`, `max-timeout` and `max_timeout` are the same word.
fn fold(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Insertions, removals, replacements and swaps of neighbours.
fn distance(left: &[char], right: &[char]) -> usize {
    let width = right.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut above: Vec<usize> = (0..width).collect();
    let mut last = None;
    for (row, a) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(width);
        current.push(row + 1);
        for (column, b) in right.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&above, column) + usize::from(a != b))
                .min(at(&above, column + 1) + 1)
                .min(at(&current, column) + 1);
            let swapped = column > 0 && last == Some(b) && right.get(column - 1) == Some(a);
            if swapped {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            current.push(cost);
        }
        before = std::mem::replace(&mut above, current);
        last = Some(a);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
