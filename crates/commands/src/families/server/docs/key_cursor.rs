//! The key specification of a row that an argument of `COMMAND DOCS` belongs to.

use engine::spec::{Begin, Find, KeySpec};

/// Assigns key arguments to key specifications, in order.
pub(in super::super) struct KeyCursor<'a> {
    specs: &'a [KeySpec],
    index: usize,
    /// Number of arguments assigned to the current specification.
    used: i16,
    /// Whether the current specification is that of patterns.
    had_patterns: bool,
}

impl<'a> KeyCursor<'a> {
    /// Returns a cursor before the first key argument.
    pub(in super::super) fn new(specs: &'a [KeySpec]) -> Self {
        Self {
            specs,
            index: 0,
            used: 0,
            had_patterns: false,
        }
    }

    /// Returns the index of the specification for the keys that a pattern stands for. All patterns
    /// share one.
    pub(super) fn of_pattern(&mut self) -> Option<usize> {
        let spec = self.specs.get(self.index)?;
        self.had_patterns = spec.begin == Begin::Unknown;
        self.had_patterns.then_some(self.index)
    }

    /// Returns the index of the next key argument's specification, or `None` if the row has no
    /// more.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.index += usize::from(std::mem::take(&mut self.had_patterns));
        let index = self.index;
        let more = match self.specs.get(index)?.find {
            Find::Range { last, step, .. } => last > self.used * i16::try_from(step).unwrap_or(1),
            Find::Count { .. } | Find::Unknown => false,
        };
        self.used += 1;
        if !more {
            self.index += 1;
            self.used = 0;
        }
        Some(index)
    }
}
