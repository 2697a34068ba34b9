//! Places on earth as scores: cells of a grid, numbered so that near cells have near numbers.
//!
//! ```text
//!   longitude  26 bits   l25 … l0       latitude  26 bits   a25 … a0
//!   cell       52 bits   l25 a25 l24 a24 … l0 a0            a whole number that a double holds
//! ```
//!
//! A `Cell` of fewer bits is a larger rectangle, whose places have the scores of one range. At most
//! nine such cells cover a [`Shape`]. Cells, their order and the computation of distances are those
//! of Redis, because our replies must equal its replies to the last digit.

mod shape;

pub use shape::{Shape, ShapeKind};

/// Maximum latitude that has a cell: the limit of the Mercator projection.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// The largest longitude.
pub const LONGITUDE_MAX: f64 = 180.0;

/// Bits of each coordinate in a score.
const STEP_MAX: u32 = 26;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    /// East is positive.
    pub longitude: f64,
    /// North is positive.
    pub latitude: f64,
}

/// A rectangle of the grid, with `step` bits of each coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    column: u32,
    row: u32,
    step: u32,
}

/// The area that a cell covers, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Place {
    /// Whether the grid has a cell for this place.
    #[must_use]
    pub fn is_on_grid(&self) -> bool {
        let is_within = |degrees: f64, most: f64| (-most..=most).contains(&degrees);
        is_within(self.longitude, LONGITUDE_MAX) && is_within(self.latitude, LATITUDE_MAX)
    }

    /// Returns the number of its smallest cell.
    #[must_use]
    pub fn score(&self) -> f64 {
        as_score(Cell::around(*self, STEP_MAX).first_score())
    }

    /// Returns the middle of the cell with this number.
    #[must_use]
    pub fn of_score(score: f64) -> Self {
        let extent = Cell::of_score(score).extent();
        let middle = |low: f64, high: f64, most: f64| f64::midpoint(low, high).clamp(-most, most);
        Self {
            longitude: middle(extent.west, extent.east, LONGITUDE_MAX),
            latitude: middle(extent.south, extent.north, LATITUDE_MAX),
        }
    }

    /// Returns the metres to another place along a great circle of a sphere (haversine formula).
    #[must_use]
    pub fn distance_m(&self, other: &Self) -> f64 {
        let (west, east) = (radians(self.longitude), radians(other.longitude));
        let across = ((east - west) / 2.0).sin();
        if across == 0.0 {
            return self.latitude_distance_m(other);
        }
        let (south, north) = (radians(self.latitude), radians(other.latitude));
        let along = ((north - south) / 2.0).sin();
        let square = along * along + south.cos() * north.cos() * across * across;
        2.0 * EARTH_RADIUS_M * square.sqrt().asin()
    }

    /// Returns the metres to the latitude of another place.
    fn latitude_distance_m(&self, other: &Self) -> f64 {
        EARTH_RADIUS_M * (radians(other.latitude) - radians(self.latitude)).abs()
    }

    /// Returns the eleven letters of its standard geohash, whose latitudes reach from pole to pole.
    /// The last letter is always `0`, because a score has bits for ten letters only.
    #[must_use]
    pub fn geohash(&self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let cell = Cell {
            column: index(self.longitude, LONGITUDE_MAX, STEP_MAX),
            row: index(self.latitude, 90.0, STEP_MAX),
            step: STEP_MAX,
        };
        let bits = cell.first_score();
        std::array::from_fn(|at| match at {
            10 => LETTERS[0],
            at => LETTERS[usize::try_from((bits >> (52 - (at + 1) * 5)) & 31).unwrap_or(0)],
        })
    }
}

impl Cell {
    /// Returns the cell of `step` bits that contains a place.
    fn around(place: Place, step: u32) -> Self {
        Self {
            column: index(place.longitude, LONGITUDE_MAX, step),
            row: index(place.latitude, LATITUDE_MAX, step),
            step,
        }
    }

    /// Returns the smallest cell with the number of a score.
    fn of_score(score: f64) -> Self {
        let bits = bits_of(score);
        Self {
            column: every_second(bits >> 1),
            row: every_second(bits),
            step: STEP_MAX,
        }
    }

    /// Returns the number of the first of the smallest cells in it.
    fn first_score(self) -> u64 {
        let bits = spread(self.row) | (spread(self.column) << 1);
        bits << (2 * (STEP_MAX - self.step))
    }

    /// Returns the range of scores of all places in it: the first score, and the one after the
    /// last.
    fn scores(self) -> (f64, f64) {
        let first = self.first_score();
        let count = 1 << (2 * (STEP_MAX - self.step));
        (as_score(first), as_score(first + count))
    }

    fn extent(self) -> Extent {
        let (west, east) = bounds(self.column, LONGITUDE_MAX, self.step);
        let (south, north) = bounds(self.row, LATITUDE_MAX, self.step);
        Extent {
            west,
            east,
            south,
            north,
        }
    }

    /// Returns the cell `columns` to the east and `rows` to the north; wraps around the edges of
    /// the grid. The eastern and northern edges themselves lie beyond the last cell. A coordinate
    /// on such an edge stays there if it does not move.
    fn moved(self, columns: i32, rows: i32) -> Self {
        let mask = (1 << self.step) - 1;
        let moved = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & mask,
        };
        Self {
            column: moved(self.column, columns),
            row: moved(self.row, rows),
            step: self.step,
        }
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// Returns the number that a score stands for. For a score that belongs to no cell, returns the
/// bits that Redis computes on its most common platform: whole numbers wrap, and what 64 bits
/// cannot hold is 2^63.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the fraction is meant to go, and the range is looked at"
    )]
    let signed = |number: f64| match (-HALF..HALF).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    };
    if score < HALF {
        signed(score).cast_unsigned()
    } else {
        signed(score - HALF).cast_unsigned() ^ (1 << 63)
    }
}

/// Converts the number of a cell, which has 52 bits, to a score.
#[allow(clippy::cast_precision_loss, reason = "52 bits are exact")]
fn as_score(bits: u64) -> f64 {
    bits as f64
}

/// Returns which of the 2^`step` intervals between `-most` and `most` contains a coordinate.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the part is between 0 and 1"
)]
fn index(coordinate: f64, most: f64, step: u32) -> u32 {
    let part = (coordinate + most) / (most + most);
    (part * f64::from(1_u32 << step)) as u32
}

/// Returns the ends of such an interval.
fn bounds(index: u32, most: f64, step: u32) -> (f64, f64) {
    let count = f64::from(1_u32 << step);
    let end = |index: f64| -most + (index / count) * (most + most);
    (end(f64::from(index)), end(f64::from(index) + 1.0))
}

/// Puts a zero bit above every bit.
fn spread(bits: u32) -> u64 {
    const MASKS: [(u32, u64); 5] = [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    MASKS.iter().fold(u64::from(bits), |bits, (shift, mask)| {
        (bits | (bits << shift)) & mask
    })
}

/// Takes every second bit, starting with the lowest.
#[allow(clippy::cast_possible_truncation, reason = "32 bits are left")]
fn every_second(bits: u64) -> u32 {
    const MASKS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ];
    let even = bits & 0x5555_5555_5555_5555;
    MASKS
        .iter()
        .fold(even, |bits, (shift, mask)| (bits | (bits >> shift)) & mask) as u32
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::*;

    pub(super) fn random_place(random: &mut Prng) -> Place {
        Place {
            longitude: (random.unit_f64() - 0.5) * 360.0,
            latitude: (random.unit_f64() - 0.5) * 170.0,
        }
    }

    #[test]
    fn scores_of_no_cell_give_what_redis_gives() {
        let geohash = |score: f64| String::from_utf8(Place::of_score(score).geohash().to_vec());
        assert_eq!(geohash(-8.0).unwrap(), "bp05b5048p0");
        assert_eq!(geohash(-0.0).unwrap(), "00bh0hbj200");
        assert_eq!(geohash(1e300).unwrap(), "00bh0hbj200");
        assert_eq!(geohash(-1e300).unwrap(), "00bh0hbj200");
        assert_eq!(geohash(3.7).unwrap(), "00bh0hbj210");
    }

    #[test]
    fn known_places_have_known_scores() {
        let palermo = Place {
            longitude: 13.361_389,
            latitude: 38.115_556,
        };
        let catania = Place {
            longitude: 15.087_269,
            latitude: 37.502_669,
        };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(catania.score(), 3_479_447_370_796_909.0);
        let (palermo, catania) = (
            Place::of_score(palermo.score()),
            Place::of_score(catania.score()),
        );
        assert_eq!(
            format!("{:.4}", palermo.distance_m(&catania)),
            "166274.1516"
        );
        assert_eq!(&palermo.geohash(), b"sqc8b49rny0");
        assert_eq!(&catania.geohash(), b"sqdtr74hyu0");
    }

    #[test]
    fn a_place_is_near_the_middle_of_its_cell() {
        let mut random = Prng::seeded(1);
        for _ in 0..1_000 {
            let place = random_place(&mut random);
            let middle = Place::of_score(place.score());
            assert!(place.distance_m(&middle) < 0.6, "{place:?}");
            assert_eq!(middle.score(), place.score());
        }
    }

    #[test]
    fn bits_are_spread_and_collected() {
        let mut random = Prng::seeded(2);
        for _ in 0..1_000 {
            let bits = u32::try_from(random.next_u64() >> 32).unwrap();
            assert_eq!(every_second(spread(bits)), bits);
            assert_eq!(spread(bits) & 0xAAAA_AAAA_AAAA_AAAA, 0);
        }
    }
}
