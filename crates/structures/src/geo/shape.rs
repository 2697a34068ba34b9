//! Circles and rectangles on earth, and the cells that cover them.

use super::{Cell, EARTH_RADIUS_M, Extent, Place, STEP_MAX, degrees, radians};

/// Half of the equator. Each step of the grid halves it.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

/// An area around a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its middle.
    pub center: Place,
    /// Its form and size.
    pub kind: ShapeKind,
}

/// Form and size of an area, with lengths in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShapeKind {
    /// All places within a distance.
    Circle {
        /// The distance.
        radius_m: f64,
    },
    /// All places within half of the width to the east or west, and half of the height to the north
    /// or south.
    Box {
        /// From west to east.
        width_m: f64,
        /// From south to north.
        height_m: f64,
    },
}

impl Shape {
    /// Returns the distance of a place from the middle, in metres, or `None` if the place is
    /// outside.
    #[must_use]
    pub fn distance_inside_m(&self, place: &Place) -> Option<f64> {
        match self.kind {
            ShapeKind::Circle { radius_m } => {
                let distance = self.center.distance_m(place);
                (distance <= radius_m).then_some(distance)
            }
            ShapeKind::Box { width_m, height_m } => {
                if place.latitude_distance_m(&self.center) > height_m / 2.0 {
                    return None;
                }
                let beside = Place {
                    latitude: place.latitude,
                    ..self.center
                };
                let is_inside = place.distance_m(&beside) <= width_m / 2.0;
                is_inside.then(|| self.center.distance_m(place))
            }
        }
    }

    /// Returns ranges of scores (the first, and the one after the last) that contain all places
    /// inside. The first range is around the middle. Near the poles, and for areas of half the
    /// globe, a range may occur twice, as in Redis.
    #[must_use]
    pub fn score_ranges(&self) -> Vec<(f64, f64)> {
        let bounds = self.bounds();
        let mut step = self.estimated_step();
        let mut cell = Cell::around(self.center, step);
        if step > 1 && !is_covered(cell, &bounds) {
            step -= 1;
            cell = Cell::around(self.center, step);
        }
        let mut ranges = Vec::with_capacity(9);
        let mut last: Option<Cell> = None;
        for (columns, rows) in AROUND {
            if step >= 2 && is_beyond(cell.extent(), &bounds, columns, rows) {
                continue;
            }
            let next = cell.moved(columns, rows);
            // The middle is not compared, as in Redis.
            if last == Some(next) && ranges.len() > 1 {
                continue;
            }
            ranges.push(next.scores());
            last = Some(next);
        }
        ranges
    }

    /// Returns the rectangle in degrees around it.
    fn bounds(&self) -> Extent {
        let (width_m, height_m) = match self.kind {
            ShapeKind::Circle { radius_m } => (radius_m, radius_m),
            ShapeKind::Box { width_m, height_m } => (width_m / 2.0, height_m / 2.0),
        };
        let Place {
            longitude,
            latitude,
        } = self.center;
        let up = degrees(height_m / EARTH_RADIUS_M);
        // The parallel nearer to the pole is shorter: the same distance is more degrees there.
        let edge = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let aside = degrees(width_m / EARTH_RADIUS_M / radians(edge).cos());
        Extent {
            west: longitude - aside,
            east: longitude + aside,
            south: latitude - up,
            north: latitude + up,
        }
    }

    /// Returns the number of bits for which a cell is about as large as the area.
    fn estimated_step(&self) -> u32 {
        let mut reach_m = match self.kind {
            ShapeKind::Circle { radius_m } => radius_m,
            ShapeKind::Box { width_m, height_m } => {
                ((width_m / 2.0) * (width_m / 2.0) + (height_m / 2.0) * (height_m / 2.0)).sqrt()
            }
        };
        if reach_m == 0.0 {
            return STEP_MAX;
        }
        let mut step: u32 = 1;
        while reach_m < MERCATOR_MAX_M {
            reach_m *= 2.0;
            step += 1;
        }
        let latitude = self.center.latitude.abs();
        let too_fine = 2 + u32::from(latitude > 66.0) + u32::from(latitude > 80.0);
        step.saturating_sub(too_fine).clamp(1, STEP_MAX)
    }
}

/// A cell and its neighbours as (columns east, rows north), in the order in which Redis visits
/// them.
const AROUND: [(i32, i32); 9] = [
    (0, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, 0),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
];

/// Whether a cell and its neighbours together reach as far as `bounds`.
fn is_covered(cell: Cell, bounds: &Extent) -> bool {
    let at = |columns, rows| cell.moved(columns, rows).extent();
    at(0, 1).north >= bounds.north
        && at(0, -1).south <= bounds.south
        && at(1, 0).east >= bounds.east
        && at(-1, 0).west <= bounds.west
}

/// Whether a neighbour contains nothing of `bounds`, because the cell itself reaches further than
/// `bounds`.
fn is_beyond(extent: Extent, bounds: &Extent, columns: i32, rows: i32) -> bool {
    (rows < 0 && extent.south < bounds.south)
        || (rows > 0 && extent.north > bounds.north)
        || (columns < 0 && extent.west < bounds.west)
        || (columns > 0 && extent.east > bounds.east)
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::super::tests::random_place;
    use super::*;

    #[test]
    fn what_is_inside_has_a_score_in_one_of_the_ranges() {
        let mut random = Prng::seeded(7);
        let mut inside = 0;
        for _ in 0..20_000 {
            let center = random_place(&mut random);
            let reach = 10_f64.powf(2.0 + random.unit_f64() * 4.0);
            let kind = match random.below(2) {
                0 => ShapeKind::Circle { radius_m: reach },
                _ => ShapeKind::Box {
                    width_m: reach,
                    height_m: reach * random.unit_f64(),
                },
            };
            // Skips places near the poles and the edge of the map, where the cells do not reach
            // around.
            if center.latitude.abs() > 60.0 || center.longitude.abs() > 150.0 {
                continue;
            }
            let shape = Shape { center, kind };
            let near = Place {
                longitude: center.longitude + (random.unit_f64() - 0.5) * reach / 50_000.0,
                latitude: center.latitude + (random.unit_f64() - 0.5) * reach / 50_000.0,
            };
            if !near.is_on_grid() || shape.distance_inside_m(&near).is_none() {
                continue;
            }
            inside += 1;
            let score = near.score();
            let ranges = shape.score_ranges();
            let is_in = |(low, high): &(f64, f64)| (*low..*high).contains(&score);
            assert!(ranges.iter().any(is_in), "{shape:?} {near:?}");
        }
        assert!(inside > 1_000);
    }
}
