//! Helpers that the model searches share.

use stateright::{Checker, Expectation, Model};

/// Returns the property that a search has found broken.
pub(crate) fn broken<M: Model>(checker: &impl Checker<M>) -> Option<&'static str>
where
    M::State: Clone + PartialEq,
    M::Action: Clone + PartialEq,
{
    let found = checker.discoveries();
    let properties = checker.model().properties();
    let broken = properties.iter().find(|property| {
        property.expectation == Expectation::Always && found.contains_key(property.name)
    });
    broken.map(|property| property.name)
}
