//! The dots of packets: on a grid, so that many packets stay few shapes, and so that no variant hides
//! another.

use std::collections::{BTreeMap, BTreeSet};

use super::FINE;
use super::panel::Place;

/// The shapes of the dots of each variant. Dots are rounded to a grid of one CSS pixel, and those that
/// touch vertically are joined, so a picture of a million packets is hardly larger than one of ten
/// thousand. Where several variants have dots, they take turns in narrow stripes.
pub fn columns_of_dots(places: &[Vec<Place>]) -> Vec<Vec<[Place; 2]>> {
    let mut present: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (variant, places) in places.iter().enumerate() {
        for (x, y) in places {
            let here = present
                .entry((x.div_euclid(GRID), y.div_euclid(GRID)))
                .or_default();
            // Variants come in order.
            if here.last() != Some(&variant) {
                here.push(variant);
            }
        }
    }
    let mut cells = vec![Vec::new(); places.len()];
    for (cell, here) in present {
        let turn = cell.0.div_euclid(STRIPE).rem_euclid(here.len() as i32);
        cells[here[turn as usize]].push(cell);
    }
    cells.iter().map(|cells| joined(cells)).collect()
}

/// Joins cells, in order, that touch vertically.
fn joined(cells: &[Place]) -> Vec<[Place; 2]> {
    let touches = |a: &Place, b: &Place| a.0 == b.0 && a.1 + 1 == b.1;
    let middle = |cell: i32| cell * GRID + GRID / 2;
    let shape = |run: &[Place]| {
        let ((x, top), (_, bottom)) = (run[0], run[run.len() - 1]);
        [
            (middle(x) - RADIUS, middle(top) - RADIUS),
            (middle(x) + RADIUS, middle(bottom) + RADIUS),
        ]
    };
    cells.chunk_by(touches).map(shape).collect()
}

/// Keeps one point in each cell of a grid, which hides the others.
pub fn apart(places: Vec<Place>, grid: i32) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    places
        .into_iter()
        .filter(|(x, y)| seen.insert((x.div_euclid(grid), y.div_euclid(grid))))
        .collect()
}

/// One CSS pixel.
const GRID: i32 = FINE as i32;
const RADIUS: i32 = FINE as i32 * 7 / 10;
/// Width of the stripes in which variants take turns, in cells.
const STRIPE: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variant_hides_another_that_has_dots_at_the_same_places() {
        let row: Vec<Place> = (0..54).map(|x| (x * GRID, 0)).collect();
        let shapes = columns_of_dots(&[row.clone(), row.clone(), row]);
        let counts: Vec<usize> = shapes.iter().map(Vec::len).collect();
        // A third of 54 places for each, none twice.
        assert_eq!(counts, [18, 18, 18]);

        // Alone, a variant has all of its places, joined where they touch.
        let column: Vec<Place> = (0..60).map(|y| (0, y * GRID)).collect();
        assert_eq!(columns_of_dots(&[column])[0].len(), 1);
    }
}
