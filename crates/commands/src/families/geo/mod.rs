//! Locations on earth: sorted sets whose scores are the numbers of cells of a grid.
//!
//! ```text
//!   places   GEOADD GEOPOS GEODIST GEOHASH
//!   search   GEOSEARCH GEOSEARCHSTORE and the older GEORADIUS forms
//!   query    what is searched for, and what of it is told: the options of all of them
//! ```
//!
//! `structures::geo` computes cells and distances. The effects are those of sorted sets.

use base::float;
use engine::args::Args;
use engine::error::CommandError;
use engine::spec::{CommandSpec, KeyAccess, KeySpec};
use structures::geo::Place;

mod places;
mod query;
mod search;

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[places::COMMANDS, search::COMMANDS];

/// The key of a command that reads it.
const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];

/// Returns the metres of the unit that an argument names.
fn unit_m(argument: &[u8]) -> Result<f64, CommandError> {
    const UNITS: [(&[u8], f64); 4] = [
        (b"m", 1.0),
        (b"km", 1000.0),
        (b"ft", 0.3048),
        (b"mi", 1609.34),
    ];
    let named = |unit: &&(&[u8], f64)| argument.eq_ignore_ascii_case(unit.0);
    let found = UNITS.iter().find(named).map(|unit| unit.1);
    found.ok_or(CommandError::fixed(
        "ERR unsupported unit provided. please use M, KM, FT, MI",
    ))
}

/// Takes the next two arguments as longitude and latitude.
fn place(args: &mut Args<'_>) -> Result<Place, CommandError> {
    let mut degrees = || number(args.bytes()?).ok_or(CommandError::NotFloat);
    let place = Place {
        longitude: degrees()?,
        latitude: degrees()?,
    };
    if !place.is_on_grid() {
        let text = format!(
            "ERR invalid longitude,latitude pair {:.6},{:.6}",
            place.longitude, place.latitude
        );
        return Err(CommandError::Text(text.into()));
    }
    Ok(place)
}

/// Parses an argument as a number.
fn number(argument: &[u8]) -> Option<f64> {
    float::parse(argument).filter(|number| !number.is_nan())
}
