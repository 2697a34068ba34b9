//! Directives about values out of memory.

use engine::Promotion;

use super::super::directive::Directive;
use super::super::value::Kind;
use super::works::spellings;
use super::{LONG_BYTES, TEXT, integer};

/// Spellings of [`Promotion`].
pub(crate) const PROMOTIONS: [(&str, Promotion); 3] = [
    ("first", Promotion::First),
    ("second", Promotion::Second),
    ("never", Promotion::Never),
];
const PROMOTION: Kind = Kind::Choice(&spellings(PROMOTIONS));

/// An entry's length has 20 bits, in units of 16 bytes.
const VALUE: Kind = Kind::Memory {
    min: 1,
    max: (16 << 20) - 1024,
};

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("tier-path", TEXT, "").at_start(),
    Directive::new("tier-max-size", LONG_BYTES, "0").at_start(),
    Directive::new("tier-min-value", VALUE, "64").at_start(),
    Directive::new("tier-max-value", VALUE, "8388608").at_start(),
    Directive::new("tier-demote-at", integer(0, 100), "90").at_start(),
    Directive::new("tier-promotion", PROMOTION, "second").at_start(),
    Directive::new("tier-compact-below", integer(1, 90), "50").at_start(),
    Directive::new("tier-read-buffer", LONG_BYTES, "16777216").at_start(),
];
